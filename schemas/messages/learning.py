"""Messages about rollouts, updates and checkpoints."""

from schemas.identity import Part
from schemas.messages.body import Message
from schemas.outcomes import CheckpointReason, Nature, Purpose, Role, RolloutOutcome
from schemas.parts import DroppedGroup, PlannedGroup, Usage


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
