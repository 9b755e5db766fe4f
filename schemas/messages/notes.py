"""Notes: tries of work, and seals. They may carry positions and are outside the round digest."""

import msgspec
from msgspec import UNSET, UnsetType

from schemas.identity import Part
from schemas.messages.body import Message
from schemas.outcomes import Nature, Role
from schemas.parts import Usage, WorkError


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
    usage: Usage | UnsetType = UNSET
    """Tokens that the try spent all the same."""


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
