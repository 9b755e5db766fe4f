"""Seals: cut alike by every observer, gone on with after a stop, and never trusted blindly."""

from pathlib import Path

import pytest

from schemas.codec import encode, same_body
from schemas.envelope import Meta
from schemas.messages import Message, RosterChanged, RunFinished, SegmentSealed
from schemas.outcomes import Role
from schemas.subjects import subject_of
from services.kernel.artifacts import ArtifactStore
from services.kernel.clock import ManualClock
from services.kernel.delivery import read_event
from services.kernel.log import Entry
from services.kernel.memory import MemoryLog
from services.kernel.seal import NO_ROOT, SealBroken
from services.observer.views.lines import LineError, decode_lines, encode_line
from services.observer.views.sealing import Sealer, note_bytes, note_of, segment_of
from tests.support.histories import seal_all
from tests.support.wheel import RUN


def entry(message: Message) -> Entry:
    return Entry(subject_of(RUN, message), message.id, encode(message, Meta(at_ns=1)))


def said(ordinal: int) -> Entry:
    return entry(RosterChanged(ordinal=ordinal, role=Role.proposer, entries=()))


def new_log() -> MemoryLog:
    return MemoryLog(RUN, same_body, clock=ManualClock())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:
    return ArtifactStore(tmp_path_factory.mktemp("artifacts")).create()


async def notes(log: MemoryLog) -> list[SegmentSealed]:
    bodies = [read_event(RUN, stored).body async for stored in log.read()]
    return [body for body in bodies if isinstance(body, SegmentSealed)]


async def follow(sealer: Sealer, log: MemoryLog, after: int = 0) -> int:
    """Feeds what is on the log, and what that puts on it, until nothing new comes."""
    while True:
        fresh = [stored async for stored in log.read(after)]
        if not fresh:
            return after
        for stored in fresh:
            await sealer.add(stored, read_event(RUN, stored))
            after = stored.seq


async def test_segments_end_after_so_many_records_and_with_the_run(store: ArtifactStore) -> None:
    log = new_log()
    await log.append([said(number) for number in range(7)] + [entry(RunFinished(why="done"))])
    await follow(Sealer(RUN, log, store, segment_records=3), log)
    found = await notes(log)
    assert [(note.ordinal, note.first, note.last, note.count) for note in found][:3] == [
        (0, 1, 3, 3), (1, 4, 6, 3), (2, 7, 8, 2),
    ]  # fmt: skip
    assert [note.previous_root for note in found] == [NO_ROOT, *(note.root for note in found[:-1])]


async def test_the_artifact_of_a_segment_holds_its_records_byte_for_byte(store: ArtifactStore) -> None:
    log = new_log()
    await log.append([said(number) for number in range(3)])
    await follow(Sealer(RUN, log, store, segment_records=3), log)
    (note,) = await notes(log)
    kept = list(decode_lines(store.get(note.segment or "")))
    assert kept == [stored async for stored in log.read()][:3]


async def test_a_note_is_in_no_segment_that_it_seals(store: ArtifactStore) -> None:
    log = new_log()
    await log.append([said(number) for number in range(40)])
    await follow(Sealer(RUN, log, store, segment_records=4), log)
    async for stored in log.read():
        body = read_event(RUN, stored).body
        if isinstance(body, SegmentSealed):
            assert body.last < stored.seq


async def test_seals_of_seals_come_to_an_end(store: ArtifactStore) -> None:
    log = new_log()
    await log.append([said(number) for number in range(9)] + [entry(RunFinished(why="done"))])
    sealer = Sealer(RUN, log, store, segment_records=3)
    position = await follow(sealer, log)
    for _ in range(5):
        await sealer.finish()
        position = await follow(sealer, log, position)
    assert position == await log.last_seq() <= 16


async def test_an_observer_killed_anywhere_is_followed_by_one_that_seals_the_same(store: ArtifactStore) -> None:
    entries = [said(number) for number in range(11)] + [entry(RunFinished(why="done"))]
    straight = new_log()
    await straight.append(entries)
    await follow(Sealer(RUN, straight, store, segment_records=3), straight)
    for stop_after in range(len(entries) + 1):
        log = new_log()
        await log.append(entries)
        first = Sealer(RUN, log, store, segment_records=3)
        async for stored in log.read():
            if stored.seq > stop_after:
                break
            await first.add(stored, read_event(RUN, stored))
        await follow(Sealer(RUN, log, store, segment_records=3), log)
        assert await notes(log) == await notes(straight)


async def test_a_restarted_observer_adds_nothing_to_a_sealed_run(store: ArtifactStore) -> None:
    log = new_log()
    await log.append([said(number) for number in range(11)] + [entry(RunFinished(why="done"))])
    await follow(Sealer(RUN, log, store, segment_records=3), log)
    before = await log.last_seq()
    sealer = Sealer(RUN, log, store, segment_records=3)
    await follow(sealer, log)
    await sealer.finish()
    assert await log.last_seq() == before


async def test_what_comes_behind_the_end_of_the_run_is_sealed_at_the_stop(store: ArtifactStore) -> None:
    log = new_log()
    await log.append([said(0), entry(RunFinished(why="done")), said(1)])
    await seal_all(log, store)
    assert [(note.first, note.last) for note in await notes(log)] == [(1, 2), (3, 3)]


async def test_nothing_is_sealed_at_a_stop_in_the_middle_of_a_run(store: ArtifactStore) -> None:
    log = new_log()
    await log.append([said(0), said(1)])
    await seal_all(log, store)
    assert await notes(log) == []


async def test_a_seal_on_the_log_that_is_not_that_of_its_records_stops_the_observer(store: ArtifactStore) -> None:
    log = new_log()
    forged = SegmentSealed(ordinal=0, first=1, last=2, count=2, root="ab" * 32, previous_root=NO_ROOT, segment=None)
    await log.append([said(0), said(1), Entry(subject_of(RUN, forged), forged.id, note_bytes(forged))])
    with pytest.raises(SealBroken):
        await follow(Sealer(RUN, log, store, segment_records=3), log)


async def test_the_bytes_of_a_note_follow_from_its_records_alone(store: ArtifactStore) -> None:
    one, two = new_log(), new_log()
    for log in (one, two):
        await log.append([said(number) for number in range(3)])
        await follow(Sealer(RUN, log, store, segment_records=3), log)
    last_one, last_two = [[stored async for stored in log.read()][-1] for log in (one, two)]
    assert last_one.data == last_two.data
    (note,) = await notes(one)
    assert last_one.data == note_bytes(note_of(0, segment_of(note), note.segment or ""))


@pytest.mark.parametrize(
    "data",
    [b'{"a": 1}', b"{}", b"null", b"", b" {}", b"{}\n", b'{\n"a":1}', b"\xff\x00", b'"\xc3\xa9"', b"not json", b"[1"],
)
async def test_any_record_keeps_its_bytes_in_a_line(data: bytes) -> None:
    log = new_log()
    await log.append([Entry("test.anything.0.-.x", "x", data)])
    stored = await log.get("test.anything.0.-.x")
    assert stored is not None
    line = encode_line(stored)
    assert line.count(b"\n") == 1
    assert list(decode_lines(line)) == [stored]


@pytest.mark.parametrize("line", [b"{}", b"", b'{"seq":1,"subject":"a","appended_at_ns":1,"base64":"*"}', b"\xff"])
def test_a_broken_line_is_named_by_its_number(line: bytes, tmp_path: Path) -> None:
    good = b'{"seq":1,"subject":"a","appended_at_ns":1,"record":{}}\n'
    with pytest.raises(LineError, match="line 2"):
        list(decode_lines(good + line + b"\n"))
