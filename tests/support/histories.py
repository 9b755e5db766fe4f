"""Whole runs as records: the scripted wheel with times, causes and costs in its metas, and artifacts that exist."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from schemas.codec import decode, encode, same_body
from schemas.envelope import Event, Meta
from schemas.identity import digest_of
from schemas.messages import Message
from schemas.outcomes import Nature, Role
from schemas.subjects import subject_of
from schemas.topology import EDGES, PURPOSES_BY_SAYER
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import read_event
from services.kernel.errors import ArtifactMissing
from services.kernel.log import Entry, EventLog, Stored, append_in_parts
from services.kernel.memory import MemoryLog
from services.observer.views.sealing import Sealer
from services.observer.views.source import Source, read_log
from tests.support import script, wheel
from tests.support.script import Script
from tests.support.wheel import RUN, Wheel, opening

START_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_000


@dataclass
class RecordedWheel(Wheel):
    """A wheel that also says who spoke when, in answer to what, and at what cost."""

    records: list[Stored] = field(default_factory=list)
    cause: str | None = None

    def append(self, message: Message) -> None:
        if message.id in self.by_id:
            super().append(message)
            return
        seq = len(self.events) + 1
        at_ns = START_NS + seq * STEP_NS
        fact = message.nature is Nature.fact
        meta = Meta(
            at_ns=at_ns,
            host="here",
            service=_sayer(message).value,
            cause=self.cause,
            started_ns=at_ns - STEP_NS // 2 if fact else None,
            cpu_s=0.25 if fact else None,
            sandbox_cpu_s=0.5 if fact else None,
        )
        stored = Stored(seq, subject_of(RUN, message), encode(message, meta), at_ns + 1000)
        event = decode(stored.data, subject=stored.subject, seq=seq)
        self.records.append(stored)
        self.by_id[event.id] = event
        self.events.append(event)
        if EDGES[message.name].work_for:
            self.work.append(message)

    def _decide(self, role: Role) -> None:
        self.cause = self.events[self.positions[role]].id
        super()._decide(role)

    def _work(self, place: int, chooser: Any) -> None:
        self.cause = self.work[place].id
        super()._work(place, chooser)


@dataclass(frozen=True)
class History:
    records: tuple[Stored, ...]
    artifacts: dict[str, bytes]
    """Bytes of everything that the records name."""

    @property
    def events(self) -> list[Event]:
        return [read_event(RUN, record) for record in self.records]

    def source(self) -> Source:
        return Source(RUN, self.records, Shelf(self.artifacts), len(self.records))


@dataclass
class Shelf:
    """Artifacts in memory."""

    contents: dict[str, bytes]

    def get(self, digest: str) -> bytes:
        if digest not in self.contents:
            raise ArtifactMissing(digest, "not on the shelf")
        return self.contents[digest]


@cache
def whole_run(order_seed: int = 1) -> History:
    """Three rounds of the scripted wheel, a few hundred records."""
    with _remembered_digests() as contents:
        turned = RecordedWheel(Script(), order_seed=order_seed)
        turned.turn(opening())
    return History(tuple(turned.records), contents)


async def sealed_source(folder: Path, history: History, *, segment_records: int = 100) -> Source:
    """The run on a log, sealed to its end."""
    log, store = MemoryLog(RUN, same_body), ArtifactStore(folder).create()
    await append_all(log, history)
    await seal_all(log, store, segment_records=segment_records)
    contents = history.artifacts | {digest: store.get(digest) for digest in store}
    return await read_log(RUN, log, Shelf(contents))


async def append_all(log: EventLog, history: History) -> None:
    await append_in_parts(log, [Entry(record.subject, record.id, record.data) for record in history.records])


async def seal_all(log: MemoryLog, store: ArtifactStore, *, segment_records: int = 100) -> None:
    sealer = Sealer(RUN, log, store, segment_records=segment_records)
    async for stored in log.read():
        await sealer.add(stored, read_event(RUN, stored))
    await sealer.finish()


@contextmanager
def _remembered_digests() -> Iterator[dict[str, bytes]]:
    """While the wheel turns, what its made-up digests are digests of is kept: so these artifacts exist."""
    contents: dict[str, bytes] = {}

    def remember(*labels: object) -> str:
        data = msgspec.json.encode([str(label) for label in labels])
        contents[digest_of(data)] = data
        return digest_of(data)

    plain = script.fake_digest
    modules: tuple[Any, ...] = (script, wheel)
    for module in modules:
        module.fake_digest = remember
    try:
        yield contents
    finally:
        for module in modules:
            module.fake_digest = plain


def _sayer(message: Message) -> Role:
    roles = EDGES[message.name].said_by
    asked = [role for role, purposes in PURPOSES_BY_SAYER.items() if message.lane() in purposes]
    return asked[0] if len(roles) > 1 and asked else roles[0]
