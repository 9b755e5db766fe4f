"""Seals the log in segments: the records as an artifact, their Merkle root as a note on the log itself.

A segment begins where the last one ended and ends after `SEGMENT_RECORDS` records or with RunFinished, so every
observer cuts alike and one that starts again goes on where the log says. A note is sealed by a later segment only.
"""

import asyncio

from schemas.codec import encode
from schemas.envelope import Event, Meta
from schemas.identity import event_id
from schemas.messages import RunFinished, SegmentSealed
from schemas.outcomes import Role
from schemas.subjects import Subject
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import append_surely, read_event
from services.kernel.log import Entry, EventLog, LogConflict, Stored
from services.kernel.seal import NO_ROOT, SealBroken, Segment, check_segment, seal
from services.observer.views.lines import encode_lines

SEGMENT_RECORDS = 500


def note_bytes(note: SegmentSealed) -> bytes:
    """The whole record of a seal. It tells no time and no host: the last seal of a log, which no other seal covers,
    can then be checked to the last byte."""
    return encode(note, Meta(service=Role.observer.value))


def note_of(ordinal: int, segment: Segment, artifact: str) -> SegmentSealed:
    return SegmentSealed(
        ordinal=ordinal,
        first=segment.first,
        last=segment.last,
        count=segment.count,
        root=segment.root,
        previous_root=segment.previous_root,
        segment=artifact,
    )


def segment_of(note: SegmentSealed) -> Segment:
    return Segment(note.first, note.last, note.count, note.root, note.previous_root)


class Sealer:
    """Feed it every record in order. Holds at most one segment's records, or what was written behind the last seal."""

    def __init__(
        self, run: str, log: EventLog, artifacts: ArtifactStore, *, segment_records: int = SEGMENT_RECORDS
    ) -> None:
        self._run = run
        self._log = log
        self._artifacts = artifacts
        self._segment_records = segment_records
        self._records: list[Stored] = []
        self._of_interest = 0
        """Records waiting that are no seals themselves."""
        self._finished = False
        self.ordinal = 0
        """Of the next segment."""
        self.root = NO_ROOT

    async def add(self, stored: Stored, event: Event) -> None:
        """Takes the next record in, and seals what is due.

        Raises: SealBroken where a seal on the log is not that of its records; what an append raises.
        """
        self._records.append(stored)
        body = event.body
        if isinstance(body, SegmentSealed):
            self._adopt(body)
        else:
            self._of_interest += 1
        while len(self._records) >= self._segment_records:
            if not await self._seal(self._segment_records):
                return
        if isinstance(body, RunFinished) and not self._finished:
            self._finished = True
            await self._seal_all()

    async def finish(self) -> None:
        """Seals what came after the run's end, if anything did. Before its end it changes nothing."""
        if self._finished and self._of_interest:
            await self._seal_all()

    async def _seal_all(self) -> None:
        while self._records and await self._seal(len(self._records)):
            pass

    async def _seal(self, count: int) -> bool:
        """Seals the first `count` records, unless the log has that seal already. False: it ends further on."""
        id_ = event_id(SegmentSealed.name, (self.ordinal,))
        subject = str(Subject(self._run, SegmentSealed.name, 0, "-", id_))
        stored = await self._log.get(subject)
        if stored is None:
            segment = seal(self._records[:count], self.root)
            text = encode_lines(self._records[:count])
            note = note_of(self.ordinal, segment, await asyncio.to_thread(self._artifacts.put, text))
            try:
                await append_surely(self._log, [Entry(subject, note.id, note_bytes(note))])
            except LogConflict as conflict:
                stored = conflict.taken[0][1]
            else:
                self._adopt(note)
                return True
        found = read_event(self._run, stored).body
        if not isinstance(found, SegmentSealed) or found.last > self._records[-1].seq:
            return False
        self._adopt(found)
        return True

    def _adopt(self, note: SegmentSealed) -> None:
        """Goes on behind a seal of the log, once its records are seen to be what it says."""
        if note.ordinal < self.ordinal:
            return
        segment = segment_of(note)
        if note.ordinal > self.ordinal or segment.previous_root != self.root:
            raise SealBroken(f"seal {note.ordinal} does not follow seal {self.ordinal - 1}: run `envwheel log verify`")
        records = [record for record in self._records if record.seq <= note.last]
        check_segment(segment, records)
        self._records = self._records[len(records) :]
        self._of_interest -= sum(_is_of_interest(record) for record in records)
        self.ordinal, self.root = note.ordinal + 1, note.root


def _is_of_interest(record: Stored) -> bool:
    return record.subject.split(".")[1] != SegmentSealed.name
