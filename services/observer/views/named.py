"""Which artifacts a message names, field by field; a test sorts every text field, so that no new one escapes."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from schemas.envelope import Event

ARTIFACT_FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "RunStarted": ("checkpoint", "base_digest", "heldout_grams"),
        "HeldOutSet": ("envs",),
        "RoundPlanned": ("checkpoint", "memory"),
        "Assignment": ("parent", "past", "trajectories"),
        "CitedRollout": ("content",),
        "RolloutRef": ("content",),
        "EnvRequested": ("memory",),
        "Evidence": ("env",),
        "GateResult": ("evidence",),
        "DraftCheckRequested": ("draft",),
        "DraftChecked": ("draft",),
        "EnvProposed": ("env", "parent", "checkpoint", "transcript", "memory_delta"),
        "EnvAbandoned": ("checkpoint", "transcript", "memory_delta"),
        "EnvValidated": ("env",),
        "EnvCalibrated": ("env",),
        "PoolChanged": ("members",),
        "PoolEntry": ("env",),
        "PoolLeaving": ("env",),
        "RolloutRequested": ("env", "checkpoint"),
        "RolloutCompleted": ("env", "content"),
        "UpdatePlanned": ("checkpoint", "state"),
        "PlannedGroup": ("env",),
        "DroppedGroup": ("env",),
        "CheckpointPublished": ("checkpoint", "state", "parent"),
        "EnvImported": ("env", "trajectories"),
        "EnvRecalled": ("env",),
        "EnvRecheckRequested": ("env",),
        "EnvRechecked": ("env",),
        "SegmentSealed": ("segment",),
    }
)
"""Fields that hold one digest, several, or none. The base's digest is that of its list of files."""


def artifacts_of(event: Event) -> Iterator[str]:
    """Digests of all artifacts that body and meta name, in the order of the fields. An empty text names nothing."""
    yield from _walk(event.body)
    if event.meta.observation:
        yield event.meta.observation
    yield from event.meta.observations.values()


def _walk(value: Any) -> Iterator[str]:
    if isinstance(value, msgspec.Struct):
        named = ARTIFACT_FIELDS.get(type(value).__name__, ())
        for name in value.__struct_fields__:
            found = getattr(value, name)
            yield from _digests(found) if name in named else _walk(found)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _walk(item)


def _digests(value: str | tuple[str, ...] | None) -> Iterator[str]:
    for digest in (value,) if isinstance(value, str) else value or ():
        if digest:
            yield digest
