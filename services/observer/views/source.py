"""What replay and export read: the records of a run, the places where the log has holes, and its artifacts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from schemas.envelope import Event
from services.kernel.delivery import read_event
from services.kernel.errors import LogGap
from services.kernel.log import EventLog, Stored

HOLES_MAX = 1000
"""So many holes are walked around; then the log is taken to end."""


class ArtifactReader(Protocol):
    def get(self, digest: str) -> bytes:
        """Raises: ArtifactMissing, ArtifactCorrupt."""
        ...


@dataclass(frozen=True)
class Source:
    """A run as it was found. `records` are in order; whatever can be wrong with them is for the levels to say."""

    run: str
    records: Sequence[Stored]
    artifacts: ArtifactReader
    last_seq: int
    """The log's own idea of its last position; above the last record's where the end cannot be read."""
    decoded: dict[int, Event] = field(default_factory=dict, repr=False, compare=False)

    @property
    def hole(self) -> int | None:
        """The first position that could not be read; None: all are there."""
        for due, record in enumerate(self.records, 1):
            if record.seq != due:
                return due
        return len(self.records) + 1 if self.last_seq > len(self.records) else None

    def events(self) -> list[Event]:
        """All records read, each decoded once. Raises: Unreadable."""
        return [self.event(record) for record in self.records]

    def event(self, record: Stored) -> Event:
        """Raises: Unreadable."""
        known = self.decoded.get(record.seq)
        if known is None:
            known = self.decoded[record.seq] = read_event(self.run, record)
        return known


async def read_log(run: str, log: EventLog, artifacts: ArtifactReader) -> Source:
    """Everything that a live log still gives; holes are left out, so that the levels can name what is missing."""
    last_seq = await log.last_seq()
    records: list[Stored] = []
    after, holes = 0, 0
    while after < last_seq and holes <= HOLES_MAX:
        try:
            async for stored in log.read(after):
                records.append(stored)
                after = stored.seq
            break
        except LogGap:
            after, holes = after + 1, holes + 1
    return Source(run, records, artifacts, last_seq)
