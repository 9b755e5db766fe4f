"""Messages about a run as a whole: its start, roster, rounds and end."""

from schemas.identity import Part
from schemas.messages.body import Message
from schemas.outcomes import Nature, Resolution, Role
from schemas.parts import HeldOutSet, RosterEntry
from schemas.science import Science


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
