"""Replay level `log`: is every record there, unchanged, in its place, and does all that it names exist?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from schemas.envelope import Event
from schemas.identity import round_digest
from schemas.messages import EnvAbandoned, EnvProposed, RoundClosed, SegmentSealed
from schemas.subjects import BadSubjectError, parse_subject
from schemas.topology import counts_for_digest
from services.kernel.delivery import read_event
from services.kernel.errors import ArtifactError, ArtifactMissing, Unreadable
from services.kernel.log import Stored
from services.kernel.seal import GENESIS, NO_ROOT, SealBroken, check_segment, link, seal
from services.observer.views.levels import Difference, Differs, LevelReport
from services.observer.views.lines import LineError, decode_lines
from services.observer.views.named import artifacts_of
from services.observer.views.projector import record_behind
from services.observer.views.sealing import note_bytes, segment_of
from services.observer.views.source import Source

LEVEL = "log"


def log_level(source: Source, *, root: str | None = None, database: Path | None = None) -> LevelReport:
    """`root`: a chain head or segment root kept elsewhere; without one the log is only consistent with itself.
    `database`: the observer's, which may know that the log was longer: a server cuts off what it cannot read.
    """
    check = _Check(source)
    try:
        check.records()
        check.end(database)
        check.rounds()
        check.artifacts()
        anchor = check.anchored(root)
    except Differs as differs:
        return LevelReport(level=LEVEL, done=check.done, equal=False, first_difference=differs.difference)
    behind = [source.event(record) for record in source.records[check.sealed_to :]]
    seals = sum(isinstance(event.body, SegmentSealed) for event in behind)
    notes = [
        anchor,
        f"sealed to record {check.sealed_to}; behind it {seals} seals, {len(behind) - seals} other records",
    ]
    return LevelReport(level=LEVEL, done=check.done, equal=True, notes=tuple(notes))


@dataclass
class _Check:
    source: Source
    done: int = 0
    sealed_to: int = 0
    _root: str = NO_ROOT
    _ordinal: int = 0
    _heads: list[bytes] = field(default_factory=lambda: [GENESIS])
    """The chain's head after each record."""
    _anchors: dict[str, str] = field(default_factory=dict)

    def records(self) -> None:
        ids: set[str] = set()
        for due, record in enumerate(self.source.records, 1):
            if record.seq != due:
                self._broken(due, "missing", f"the log goes on with position {record.seq}")
            try:
                event = self.source.event(record)
            except Unreadable as error:
                self._broken(due, "changed", str(error))
            if event.id in ids:
                self._broken(due, "added", "its id is taken by an earlier record")
            ids.add(event.id)
            self._heads.append(link(self._heads[-1], record.subject, record.data))
            if isinstance(event.body, SegmentSealed):
                self._seal(record, event.body)
            self.done = due
        if self.source.last_seq > self.done:
            self._broken(self.done + 1, "missing", f"the log says that it has {self.source.last_seq} records")

    def end(self, database: Path | None) -> None:
        if database is None or not database.exists() or (known := record_behind(database, self.done)) is None:
            return
        position, message, id_ = known
        detail = f"the log ends before it; {database.name} was made from {position} records"
        raise Differs(Difference(what="missing", seq=self.done + 1, message=message, id=id_, detail=detail))

    def _seal(self, record: Stored, note: SegmentSealed) -> None:
        segment = segment_of(note)
        if record.data != note_bytes(note):
            self._broken(record.seq, "changed", "not written as a seal is")
        if note.ordinal != self._ordinal or segment.first != self.sealed_to + 1 or segment.last >= record.seq:
            self._broken(record.seq, "changed", f"seal {note.ordinal} does not follow seal {self._ordinal - 1}")
        try:
            check_segment(segment, self.source.records[segment.first - 1 : segment.last])
        except SealBroken as broken:
            self._inside(record, note, str(broken))
        self._times(record, note)
        if segment.previous_root != self._root:
            self._broken(record.seq, "changed", f"names the previous root {segment.previous_root}, it is {self._root}")
        self.sealed_to, self._root, self._ordinal = segment.last, segment.root, note.ordinal + 1
        self._anchors[segment.root] = f"records {segment.first} to {segment.last}"
        self._anchors[self._heads[segment.last].hex()] = f"records 1 to {segment.last}"

    def _times(self, record: Stored, note: SegmentSealed) -> None:
        """No chain holds when the log took a record; what was sealed tells."""
        for there in self._kept(record, note):
            here = self.source.records[there.seq - 1]
            if here.appended_at_ns != there.appended_at_ns:
                detail = f"appended at {here.appended_at_ns}, seal {note.ordinal} says {there.appended_at_ns}"
                raise _differs("changed", there, detail)

    def _inside(self, record: Stored, note: SegmentSealed, why: str) -> NoReturn:
        """The records are not those that were sealed: find the first that differs."""
        kept = self._kept(record, note)
        if seal(kept, note.previous_root) != segment_of(note):
            self._broken(record.seq, "changed", f"the records it sealed do not give its root: {why}")
        for there in kept:
            here = self.source.records[there.seq - 1]
            if (here.subject, here.data) != (there.subject, there.data):
                raise _differs(*_first_change(self.source.records, there, kept), f"against seal {note.ordinal}")
        self._broken(record.seq, "changed", f"the records that it names are not those that it sealed: {why}")

    def _kept(self, record: Stored, note: SegmentSealed) -> list[Stored]:
        try:
            kept = list(decode_lines(self.source.artifacts.get(note.segment or "")))
        except (ArtifactError, LineError) as error:
            raise _artifact_differs(note.segment or "", error, record, note.name) from error
        return kept

    def _broken(self, seq: int, what: str, detail: str) -> NoReturn:
        """Something is wrong at a position; a sealed segment, if one covers it, tells what should be there."""
        due = next((kept for kept in self._sealed_records() if kept.seq == seq), None)
        here = next((record for record in self.source.records if record.seq == seq), None)
        if due is not None and here is not None and (due.subject, due.data) != (here.subject, here.data):
            raise _differs("changed", due, f"not as it was sealed; {detail}")
        if due is not None or here is not None:
            raise _differs(what, due or here, detail)
        detail += "; no sealed segment covers it, so its id is not known"
        raise Differs(Difference(what=what, seq=seq, detail=detail))

    def _sealed_records(self) -> Iterator[Stored]:
        """All records of all segments that can still be read, whatever else is broken."""
        for record in self.source.records:
            try:
                body = read_event(self.source.run, record).body
                if isinstance(body, SegmentSealed):
                    yield from decode_lines(self.source.artifacts.get(body.segment or ""))
            except (Unreadable, ArtifactError, LineError):
                continue

    def rounds(self) -> None:
        """Round digests, counted as the trainer counts: first answers only, up to what the end of the round follows."""
        positions = {event.id: event.seq for event in self.source.events()}
        for closed in self.source.events():
            if isinstance(closed.body, RoundClosed):
                end = positions.get(closed.meta.cause or "", closed.seq)
                found = round_digest(_bodies(self.source.events()[:end], closed.body.round))
                if found != closed.body.digest:
                    raise _event_differs(closed, "changed", f"says {closed.body.digest}, the log gives {found}")

    def artifacts(self) -> None:
        seen: set[str] = set()
        for record in self.source.records:
            event = self.source.event(record)
            for digest in artifacts_of(event):
                if digest in seen:
                    continue
                seen.add(digest)
                try:
                    self.source.artifacts.get(digest)
                except ArtifactError as error:
                    raise _artifact_differs(digest, error, record, event.body.name) from error

    def anchored(self, root: str | None) -> str:
        if root is None:
            unanchored = "consistent with itself, not anchored"
            head = self._heads[self.sealed_to].hex()
            return f"{unanchored}; to keep elsewhere, for --root: {head}" if self.sealed_to else unanchored
        if root not in self._anchors:
            raise Differs(Difference(what="unanchored", detail=f"no seal has the root or chain head {root}"))
        return f"anchored: {self._anchors[root]} are those of {root}"


def _bodies(events: list[Event], round_: int) -> dict[str, str]:
    bodies: dict[str, str] = {}
    answered: set[tuple[int, int]] = set()
    for event in events:
        body = event.body
        if body.round != round_ or not counts_for_digest(body):
            continue
        if isinstance(body, EnvProposed | EnvAbandoned):
            if (body.slot, body.revision) in answered:
                continue
            answered.add((body.slot, body.revision))
        bodies[event.id] = event.body_digest
    return bodies


def _first_change(here: Sequence[Stored], due: Stored, kept: list[Stored]) -> tuple[str, Stored]:
    """Where a record is not the one that was sealed: was it changed, taken out, or another put in before it?"""
    found = here[due.seq - 1]
    if found.subject == due.subject:
        return "changed", due
    if any(record.subject == due.subject for record in here):
        return ("added", found) if all(found.subject != record.subject for record in kept) else ("changed", due)
    following = {first.subject: second.subject for first, second in pairwise(kept)}
    return ("missing" if following.get(due.subject) == found.subject else "changed"), due


def _differs(what: str, record: Stored | None, detail: str) -> Differs:
    if record is None:
        return Differs(Difference(what=what, detail=detail))
    try:
        subject = parse_subject(record.subject)
        name, id_ = subject.message, subject.id
    except BadSubjectError:
        name, id_ = record.subject, record.id
    return Differs(Difference(what=what, seq=record.seq, message=name, id=id_, detail=detail))


def _event_differs(event: Event, what: str, detail: str) -> Differs:
    return Differs(Difference(what=what, seq=event.seq, message=event.body.name, id=event.id, detail=detail))


def _artifact_differs(digest: str, error: Exception, record: Stored, message: str) -> Differs:
    what = "missing" if isinstance(error, ArtifactMissing) else "changed"
    detail = f"{error}; named by this record"
    return Differs(Difference(what=what, artifact=digest, seq=record.seq, message=message, id=record.id, detail=detail))
