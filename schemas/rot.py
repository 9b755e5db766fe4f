"""Environments that passed the gates once: which are put through them again, and which no longer pass. From the log."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from schemas.messages import EnvRecalled, EnvRechecked
from schemas.outcomes import GateOutcome, Verdict
from schemas.parts import GateResult, PoolEntry

DETAIL_CHARS_MAX = 300
"""A pool's decision is one message, however many leave it."""


@dataclass
class RotBook:
    """A recheck that nobody could carry out says nothing: it is due again in the next round."""

    open: set[tuple[str, int]] = field(default_factory=set)
    """Environment and ordinal of the rechecks that the running round waits for."""
    passed: dict[str, int] = field(default_factory=dict)
    """Round in which a member last passed a recheck."""
    failed: dict[str, str] = field(default_factory=dict)
    """Why the newest recheck of an environment failed."""
    recalled: dict[str, str] = field(default_factory=dict)
    """Why the operator took it back. For good: what a recheck finds on the run's own base does not undo it."""

    def begin(self, round_: int, members: Mapping[str, PoolEntry], every_rounds: int) -> list[str]:
        """Members whose last pass through the gates is so many rounds old, sorted; the round waits for their rechecks,
        which have its number as their ordinal. `every_rounds` 0: none.
        """
        due = [
            env
            for env, entry in sorted(members.items())
            if every_rounds and round_ - self.passed.get(env, entry.round) >= every_rounds and not self.reason(env)
        ]
        self.open = {(env, round_) for env in due}
        return due

    def fold(self, body: EnvRechecked | EnvRecalled) -> bool:
        """Take one message in. True where the round waited for it."""
        if isinstance(body, EnvRecalled):
            self.recalled[body.env] = _clipped(f"on base {body.base_digest[:12]}: {first_failure(body.gates)}")
            return False
        if body.verdict is Verdict.valid:
            self.passed[body.env] = body.round
            self.failed.pop(body.env, None)
        elif body.verdict is Verdict.invalid:
            self.failed[body.env] = _clipped(first_failure(body.gates))
        waited = (body.env, body.ordinal) in self.open
        self.open.discard((body.env, body.ordinal))
        return waited

    def forget_all_but(self, members: Collection[str]) -> None:
        self.passed = {env: round_ for env, round_ in self.passed.items() if env in members}

    def reason(self, env: str) -> str | None:
        """Why the environment may not be in the pool; None where nothing speaks against it."""
        return self.recalled.get(env) or self.failed.get(env)


def first_failure(gates: tuple[GateResult, ...]) -> str:
    failed = next((gate for gate in gates if gate.outcome is GateOutcome.failed), None)
    return f"{failed.gate}: {failed.detail}" if failed else "a gate failed"


def _clipped(text: str) -> str:
    return text if len(text) <= DETAIL_CHARS_MAX else text[: DETAIL_CHARS_MAX - 1] + "…"
