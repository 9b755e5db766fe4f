"""Every message of the log: its name, version, nature, logical key and body (DESIGN 2).

A body follows from its causes alone. Who said it, when and at what cost is in `envelope.Meta`.
"""

from typing import ClassVar

import msgspec

from schemas.identity import Part, event_id
from schemas.outcomes import (
    Abandoned,
    Calibration,
    CheckpointReason,
    Nature,
    Purpose,
    Resolution,
    Role,
    RolloutOutcome,
    Verdict,
)
from schemas.parts import (
    Assignment,
    DroppedGroup,
    Evidence,
    GateResult,
    HeldOutSet,
    PlannedGroup,
    PoolEntry,
    PoolLeaving,
    RolloutRef,
    RosterEntry,
    Slot,
    Usage,
    WorkError,
)
from schemas.science import Science, Section


class Message(Section, frozen=True, kw_only=True):
    """Base of all bodies."""

    name: ClassVar[str]
    version: ClassVar[int] = 1
    nature: ClassVar[Nature]

    round: int = 0

    def key(self) -> tuple[Part, ...]:
        """The logical key; with the name it decides the id."""
        raise TypeError(f"{type(self).__name__} has no logical key")

    def lane(self) -> str:
        """The subject's fourth token: a purpose, a role, or `-`."""
        return "-"

    @property
    def id(self) -> str:
        return event_id(self.name, self.key())


class RunStarted(Message, frozen=True, kw_only=True):
    name = "run_started"
    nature = Nature.operator

    seed: int
    science: Science
    checkpoint: str
    """Digest of the solver's cold start."""
    code_version: str
    policies: dict[str, int]
    messages: dict[str, int]
    base_digest: str
    base_kind: str
    heldout: tuple[HeldOutSet, ...] = ()
    heldout_grams: str | None = None
    """Artifact with the digests of the held-out instructions' 13-grams."""

    def key(self) -> tuple[Part, ...]:
        return ()


class RosterChanged(Message, frozen=True, kw_only=True):
    name = "roster_changed"
    nature = Nature.operator

    ordinal: int
    role: Role
    entries: tuple[RosterEntry, ...]
    from_round: int | None = None
    """None: at once, at the next request issued."""

    def key(self) -> tuple[Part, ...]:
        return (self.ordinal,)


class WorkResolved(Message, frozen=True, kw_only=True):
    name = "work_resolved"
    nature = Nature.operator

    work_id: str
    ordinal: int
    role: Role
    subject: str
    """Subject of the parked work message."""
    action: Resolution

    def key(self) -> tuple[Part, ...]:
        return (self.work_id, self.ordinal)

    def lane(self) -> str:
        return self.role.value


class RoundPlanned(Message, frozen=True, kw_only=True):
    name = "round_planned"
    nature = Nature.decision

    wave: int
    target: int
    """Environments still to be admitted when this wave was planned."""
    waves_left: int
    slots: tuple[Slot, ...]
    checkpoint_version: int
    checkpoint: str
    pool_version: int
    memory: tuple[str, ...]
    """Digests of the memory deltas that workers start from, in order."""

    def key(self) -> tuple[Part, ...]:
        return (self.round, self.wave)


class SlotMessage(Message, frozen=True, kw_only=True):
    """A message about one revision of one slot."""

    slot: int
    revision: int

    def key(self) -> tuple[Part, ...]:
        return (self.round, self.slot, self.revision)


class EnvRequested(SlotMessage, frozen=True, kw_only=True):
    name = "env_requested"
    nature = Nature.request

    assignment: Assignment
    entry: RosterEntry
    pool_version: int
    checkpoint_version: int
    memory: tuple[str, ...]
    evidence: Evidence | None = None


class DraftCheckRequested(SlotMessage, frozen=True, kw_only=True):
    name = "draft_check_requested"
    nature = Nature.request

    draft: str

    def key(self) -> tuple[Part, ...]:
        return (self.round, self.slot, self.revision, self.draft)


class DraftChecked(SlotMessage, frozen=True, kw_only=True):
    name = "draft_checked"
    nature = Nature.fact

    draft: str
    verdict: Verdict
    gates: tuple[GateResult, ...]

    def key(self) -> tuple[Part, ...]:
        return (self.round, self.slot, self.revision, self.draft)


class EnvProposed(SlotMessage, frozen=True, kw_only=True):
    name = "env_proposed"
    nature = Nature.fact

    env: str
    parent: str | None
    cited: tuple[str, ...]
    entry: RosterEntry
    checkpoint: str | None
    transcript: str
    usage: Usage
    pool_version: int
    memory_delta: str | None = None


class EnvAbandoned(SlotMessage, frozen=True, kw_only=True):
    name = "env_abandoned"
    nature = Nature.fact

    reason: Abandoned
    entry: RosterEntry
    checkpoint: str | None = None
    transcript: str | None = None
    usage: Usage = Usage()
    memory_delta: str | None = None
    detail: str = ""


class EnvValidated(SlotMessage, frozen=True, kw_only=True):
    name = "env_validated"
    nature = Nature.fact

    env: str
    verdict: Verdict
    gates: tuple[GateResult, ...]
    sketch: str | None = None
    """Near-duplicate sketch of fixed size, hex."""


class EnvCalibrated(SlotMessage, frozen=True, kw_only=True):
    name = "env_calibrated"
    nature = Nature.fact

    env: str
    outcome: Calibration
    mean: float
    std: float
    count: int
    rollouts: tuple[str, ...]
    commonest_failure: str | None = None


class PoolChanged(Message, frozen=True, kw_only=True):
    name = "pool_changed"
    nature = Nature.decision

    pool_version: int
    members: tuple[str, ...]
    added: tuple[PoolEntry, ...]
    retired: tuple[PoolLeaving, ...]

    def key(self) -> tuple[Part, ...]:
        return (self.pool_version,)


class RolloutRequested(Message, frozen=True, kw_only=True):
    """A group to be run: `attempts` rollouts of one environment by one checkpoint."""

    name = "rollout_requested"
    nature = Nature.request

    env: str
    checkpoint_version: int
    checkpoint: str
    purpose: Purpose
    attempts: int
    seed: int
    ordinal: int = 0
    role: Role = Role.solver
    slot: int | None = None
    revision: int | None = None
    set_name: str | None = None
    """For `evaluate`: the held-out set."""

    def key(self) -> tuple[Part, ...]:
        if self.purpose in (Purpose.calibrate, Purpose.diagnose, Purpose.draft):
            about: tuple[Part, ...] = (self.round, self.slot or 0, self.revision or 0)
            about += (self.env,) if self.purpose is Purpose.draft else ()
        else:
            about = (self.env,)
        return (self.purpose.value, *about, self.role.value, self.checkpoint_version, self.ordinal)

    def lane(self) -> str:
        return self.purpose.value


class RolloutCompleted(Message, frozen=True, kw_only=True):
    name = "rollout_completed"
    nature = Nature.fact

    request: str
    attempt: int
    env: str
    purpose: Purpose
    checkpoint_version: int
    outcome: RolloutOutcome
    reward: float | None
    """Share of tests passed, [0, 1]; None exactly for `infra_failed`."""
    tests: dict[str, bool]
    content: str | None
    """Digest of the transcript's content artifact."""
    usage: Usage = Usage()
    volatile: bool = False
    """A CPU limit or an unpinned reading decided it: the round's digest is not comparable."""
    broken: bool = False
    """The environment cannot be graded: it is quarantined."""
    detail: str = ""

    def key(self) -> tuple[Part, ...]:
        return (self.request, self.attempt)

    def lane(self) -> str:
        return self.purpose.value


class UpdatePlanned(Message, frozen=True, kw_only=True):
    name = "update_planned"
    nature = Nature.decision

    role: Role
    update: int
    parent_version: int
    checkpoint: str
    state: str | None
    """Trainer state that goes with the checkpoint; None before the first update."""
    groups: tuple[PlannedGroup, ...]
    dropped: tuple[DroppedGroup, ...]
    seed: int

    def key(self) -> tuple[Part, ...]:
        return (self.role.value, self.update)


class CheckpointPublished(Message, frozen=True, kw_only=True):
    name = "checkpoint_published"
    nature = Nature.fact

    role: Role
    checkpoint_version: int
    checkpoint: str
    state: str | None
    parent: str | None
    reason: CheckpointReason
    metrics: dict[str, float]
    recipe: str = ""

    def key(self) -> tuple[Part, ...]:
        return (self.role.value, self.checkpoint_version)


class RoundClosed(Message, frozen=True, kw_only=True):
    name = "round_closed"
    nature = Nature.decision

    counts: dict[str, int]
    digest: str
    memory: str
    degraded: bool = False
    """True where infrastructure failures or volatile rollouts make the digest not comparable."""

    def key(self) -> tuple[Part, ...]:
        return (self.round,)


class RunFinished(Message, frozen=True, kw_only=True):
    name = "run_finished"
    nature = Nature.decision

    why: str

    def key(self) -> tuple[Part, ...]:
        return ()


class EnvImported(Message, frozen=True, kw_only=True):
    name = "env_imported"
    nature = Nature.operator

    ordinal: int
    env: str
    source: str
    licence: str

    def key(self) -> tuple[Part, ...]:
        return (self.ordinal,)


class EnvRecheckRequested(Message, frozen=True, kw_only=True):
    name = "env_recheck_requested"
    nature = Nature.request

    env: str
    ordinal: int
    base_digest: str
    cause: str

    def key(self) -> tuple[Part, ...]:
        return (self.env, self.ordinal)


class EnvRechecked(Message, frozen=True, kw_only=True):
    name = "env_rechecked"
    nature = Nature.fact

    env: str
    ordinal: int
    verdict: Verdict
    gates: tuple[GateResult, ...]

    def key(self) -> tuple[Part, ...]:
        return (self.env, self.ordinal)


class WorkNote(Message, frozen=True, kw_only=True):
    """A note about one try of one work message."""

    nature = Nature.note

    role: Role
    work_id: str
    try_: int = msgspec.field(name="try")

    def key(self) -> tuple[Part, ...]:
        return (self.work_id, self.try_)

    def lane(self) -> str:
        return self.role.value


class WorkStarted(WorkNote, frozen=True, kw_only=True):
    name = "work_started"


class WorkFailed(WorkNote, frozen=True, kw_only=True):
    name = "work_failed"

    error: WorkError


class WorkParked(WorkNote, frozen=True, kw_only=True):
    name = "work_parked"

    subject: str
    reason: str


class SegmentSealed(Message, frozen=True, kw_only=True):
    name = "segment_sealed"
    nature = Nature.note

    ordinal: int
    first: int
    last: int
    count: int
    root: str
    previous_root: str
    segment: str | None = None
    """Artifact that holds the sealed records, one JSON line each."""

    def key(self) -> tuple[Part, ...]:
        return (self.ordinal,)


MESSAGES: tuple[type[Message], ...] = (
    RunStarted,
    RosterChanged,
    WorkResolved,
    RoundPlanned,
    EnvRequested,
    DraftCheckRequested,
    DraftChecked,
    EnvProposed,
    EnvAbandoned,
    EnvValidated,
    EnvCalibrated,
    PoolChanged,
    RolloutRequested,
    RolloutCompleted,
    UpdatePlanned,
    CheckpointPublished,
    RoundClosed,
    RunFinished,
    EnvImported,
    EnvRecheckRequested,
    EnvRechecked,
    WorkStarted,
    WorkFailed,
    WorkParked,
    SegmentSealed,
)
"""All of them, in the order of DESIGN 2."""

BY_NAME: dict[str, type[Message]] = {message.name: message for message in MESSAGES}

__all__ = [message.__name__ for message in MESSAGES] + ["BY_NAME", "MESSAGES", "Message", "RolloutRef", "WorkNote"]
