"""Versions that a run began with: who decides or speaks otherwise must not take part in it."""

from schemas.messages import BY_NAME, RunStarted
from schemas.outcomes import Role


def other_versions(run: RunStarted, role: Role, policy_version: int) -> list[str]:
    """What this code would decide or say in another version than the one pinned by RunStarted; nothing: all is well."""
    found = []
    pinned = run.policies.get(role.value, policy_version)
    if pinned != policy_version:
        found.append(f"policy of {role.value}: the run has {pinned}, this code {policy_version}")
    for name, version in sorted(run.messages.items()):
        spoken = BY_NAME[name].version if name in BY_NAME else None
        if spoken != version:
            found.append(f"message {name}: the run has {version}, this code {spoken}")
    return found
