"""Messages about environments: plans, requests, proposals, verdicts, the pool."""

from msgspec import UNSET, UnsetType

from schemas.identity import Part
from schemas.messages.body import Message
from schemas.outcomes import Abandoned, Calibration, Nature, Verdict
from schemas.parts import Assignment, Evidence, GateResult, PoolEntry, PoolLeaving, RosterEntry, Slot, Usage


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
    pool_version: int

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


class EnvImported(Message, frozen=True, kw_only=True):
    name = "env_imported"
    nature = Nature.operator

    ordinal: int
    env: str
    source: str
    licence: str
    trajectories: tuple[str, ...] | UnsetType = UNSET
    """Artifacts with attempts of other agents on it, in one form whatever they came in."""

    def key(self) -> tuple[Part, ...]:
        return (self.ordinal,)


class EnvRecalled(Message, frozen=True, kw_only=True):
    """The operator has put an environment through the gates again, perhaps on another base, and takes it back."""

    name = "env_recalled"
    nature = Nature.operator

    ordinal: int
    env: str
    base_digest: str
    """The base that the gates were run on."""
    gates: tuple[GateResult, ...]

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
