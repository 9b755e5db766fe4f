"""Both logs against the simplest model there is: a list of records and a dict of subjects."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.kernel.jetstream_log import connect
from services.kernel.log import Entry, EventLog, LogConflict, LogPartial, Stored, append_missing
from services.kernel.memory import MemoryLog
from services.kernel.nats_server import NatsServer
from tests.support.nats import nats_server

Batch = dict[int, int]
"""key -> what is said under it; few of both, so that batches meet."""
batches = st.lists(st.dictionaries(st.integers(0, 7), st.integers(0, 1), min_size=1, max_size=4), max_size=12)
_runs = count()


@dataclass
class Model:
    records: list[tuple[int, int]] = field(default_factory=list)

    def append(self, batch: Batch) -> object:
        taken = dict(self.records)
        if differing := sorted(key for key, said in batch.items() if taken.get(key, said) != said):
            return ("conflict", differing)
        missing = sorted(set(batch) - set(taken))
        places = [key for key, _ in self.records]
        if not missing:
            return ("known", [places.index(key) + 1 for key in batch])
        if len(missing) < len(batch):
            return ("partial", missing)
        self.records += batch.items()
        return ("stored", list(range(len(self.records) - len(batch) + 1, len(self.records) + 1)))


def same(stored: bytes, mine: bytes) -> bool:
    return stored[:1] == mine[:1]


def key_of(subject: str) -> int:
    return int(subject.rpartition(".")[2])


async def outcome(log: EventLog, entries: Sequence[Entry]) -> object:
    try:
        appended = await log.append(entries)
    except LogConflict as conflict:
        return ("conflict", sorted(key_of(entry.subject) for entry, _ in conflict.taken))
    except LogPartial as partial:
        return ("partial", sorted(key_of(entry.subject) for entry in partial.missing))
    return ("stored" if appended.stored else "known", list(appended.seqs))


async def check(log: EventLog, run: str, history: list[Batch]) -> None:
    model = Model()
    for number, batch in enumerate(history):
        entries = [
            Entry(f"{run}.k{key % 2}.{key}", str(key), b"%d at %d" % (said, number)) for key, said in batch.items()
        ]
        assert await outcome(log, entries) == model.append(batch)
        assert await log.last_seq() == len(model.records)
    read: list[Stored] = [record async for record in log.read()]
    assert [(key_of(record.subject), int(record.data[:1])) for record in read] == model.records
    assert [record.seq for record in read] == list(range(1, len(read) + 1))
    odd = [record.seq async for record in log.read(1, (f"{run}.k1.*",))]
    assert odd == [seq for seq, (key, _) in enumerate(model.records, 1) if key % 2 and seq > 1]
    for key in range(8):
        found = await log.get(f"{run}.k{key % 2}.{key}")
        assert (found and found.seq) == next((s for s, (k, _) in enumerate(model.records, 1) if k == key), None)


@settings(max_examples=150, deadline=None)
@given(batches)
def test_the_memory_log_does_what_the_model_does(history: list[Batch]) -> None:
    asyncio.run(check(MemoryLog("run", same), "run", history))


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with nats_server() as started:
        yield started


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=batches)
def test_the_jetstream_log_does_what_the_model_does(server: NatsServer, history: list[Batch]) -> None:
    async def on_a_new_stream() -> None:
        run = f"run{next(_runs)}"
        log = await connect(server.url, run, same, create=True, patience_s=5.0)
        await check(log, run, history)
        await log.close()

    asyncio.run(on_a_new_stream())


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sets(st.integers(0, 12), min_size=1), max_size=8))
def test_appending_what_is_missing_ends_with_each_once(wanted: list[set[int]]) -> None:
    async def append_all() -> None:
        log = MemoryLog("run", same)
        for keys in wanted:
            await append_missing(log, [Entry(f"run.k.{key}", str(key), b"0") for key in sorted(keys)])
        read = [key_of(record.subject) async for record in log.read()]
        assert sorted(read) == sorted(set().union(*wanted))

    asyncio.run(append_all())
