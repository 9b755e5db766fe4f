"""What every event log must hold: create-only for ever, atomic batches, one order, work queues."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from services.kernel.errors import LogTooLarge
from services.kernel.jetstream_log import connect
from services.kernel.log import (
    Entry,
    EventLog,
    LogConflict,
    LogPartial,
    Stored,
    append_in_parts,
    append_missing,
)
from services.kernel.memory import MemoryLog
from tests.support.nats import nats_server


def same(stored: bytes, mine: bytes) -> bool:
    """Records here are `<said>|<observed>`."""
    return stored.partition(b"|")[0] == mine.partition(b"|")[0]


@pytest.fixture(params=["memory", "jetstream"])
async def log(request: pytest.FixtureRequest) -> AsyncIterator[EventLog]:
    if request.param == "memory":
        yield MemoryLog("run1", same)
        return
    with nats_server() as server:
        opened = await connect(server.url, "run1", same, create=True, patience_s=5.0)
        yield opened
        await opened.close()


def entry(key: str, said: str = "x", observed: str = "") -> Entry:
    return Entry(f"run1.{key}", key.rpartition(".")[2], f"{said}|{observed}".encode())


async def everything(log: EventLog, after: int = 0, *subjects: str) -> list[Stored]:
    return [stored async for stored in log.read(after, subjects or (">",))]


async def test_appended_records_are_read_back_in_order_with_positions_from_one(log: EventLog) -> None:
    assert await log.last_seq() == 0
    assert (await log.append([entry("a.1", "one")])).seqs == (1,)
    batch = await log.append([entry("b.2", "two"), entry("a.3", "three")])
    assert (batch.seqs, batch.stored) == ((2, 3), True)

    records = await everything(log)

    assert [(r.seq, r.subject, r.id, r.data) for r in records] == [
        (1, "run1.a.1", "1", b"one|"),
        (2, "run1.b.2", "2", b"two|"),
        (3, "run1.a.3", "3", b"three|"),
    ]
    assert [r.remaining for r in records] == [2, 1, 0]
    assert records[0].appended_at_ns <= records[1].appended_at_ns <= records[2].appended_at_ns
    assert await log.last_seq() == 3


async def test_a_repeated_append_stores_nothing_and_names_the_first_positions(log: EventLog) -> None:
    await log.append([entry("a.1", "one", "at noon")])
    await log.append([entry("b.1"), entry("b.2")])

    again = await log.append([entry("a.1", "one", "at night")])
    batch = await log.append([entry("b.1", observed="late"), entry("b.2")])

    assert (again.seqs, again.stored) == ((1,), False)
    assert (batch.seqs, batch.stored) == ((2, 3), False)
    assert [r.data for r in await everything(log)] == [b"one|at noon", b"x|", b"x|"]


async def test_another_body_under_a_taken_subject_is_refused_and_leaves_no_trace(log: EventLog) -> None:
    await log.append([entry("a.1", "one")])

    with pytest.raises(LogConflict, match=r"run1\.a\.1 \(at 1\)") as single:
        await log.append([entry("a.1", "other")])
    with pytest.raises(LogConflict) as batch:
        await log.append([entry("a.0"), entry("a.1", "other"), entry("a.2")])

    [(mine, stored)] = batch.value.taken
    assert (mine.data, stored.seq, stored.data) == (b"other|", 1, b"one|")
    assert single.value.took_effect is False
    assert [r.subject for r in await everything(log)] == ["run1.a.1"]


async def test_a_batch_known_in_part_stores_nothing_and_says_what_is_missing(log: EventLog) -> None:
    await log.append([entry("a.2")])
    wanted = [entry("a.1"), entry("a.2", observed="mine"), entry("a.3")]

    with pytest.raises(LogPartial, match="1 of 3") as partial:
        await log.append(wanted)
    assert [e.subject for e in partial.value.missing] == ["run1.a.1", "run1.a.3"]
    assert [s.seq for s in partial.value.present] == [1]
    assert await log.last_seq() == 1

    await append_missing(log, wanted)
    await append_missing(log, wanted)
    assert [r.subject for r in await everything(log)] == ["run1.a.2", "run1.a.1", "run1.a.3"]


async def test_of_many_writers_of_one_subject_one_wins_and_all_agree_on_its_place(log: EventLog) -> None:
    ours = [[entry(f"w{n}.0"), entry("shared.1", f"by {n}"), entry(f"w{n}.2")] for n in range(8)]

    outcomes = await asyncio.gather(*(log.append(batch) for batch in ours), return_exceptions=True)

    wins = [n for n, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
    assert len(wins) == 1
    assert all(isinstance(outcome, LogConflict) for n, outcome in enumerate(outcomes) if n not in wins)
    assert [r.data for r in await everything(log)] == [b"x|", f"by {wins[0]}|".encode(), b"x|"]


async def test_batches_of_concurrent_writers_never_interleave(log: EventLog) -> None:
    batches = [[entry(f"w{n}.{i}") for i in range(20)] for n in range(6)]

    seqs = [appended.seqs for appended in await asyncio.gather(*(log.append(batch) for batch in batches))]

    assert all(list(s) == list(range(s[0], s[0] + 20)) for s in seqs)
    records = {r.seq: r.subject for r in await everything(log)}
    assert all([records[s] for s in seqs[n]] == [e.subject for e in batches[n]] for n in range(6))
    assert sorted(records) == list(range(1, 121))


async def test_reading_resumes_behind_a_position_and_filters_by_subject(log: EventLog) -> None:
    await log.append([entry(f"{'ab'[n % 2]}.{n}.q") for n in range(1, 8)])

    assert [r.seq for r in await everything(log, 5)] == [6, 7]
    assert [r.seq for r in await everything(log, 7)] == []
    assert [(r.seq, r.remaining) for r in await everything(log, 2, "run1.a.*.q")] == [(4, 1), (6, 0)]
    assert [r.seq for r in await everything(log, 0, "run1.a.2.q", "run1.b.>")] == [1, 2, 3, 5, 7]
    assert await everything(log, 0, "run1.c.>") == []


async def test_a_follower_sees_what_is_appended_later(log: EventLog) -> None:
    await log.append([entry("a.1")])
    seen: list[int] = []
    async with aclosing(log.read(0, ("run1.a.*",), follow=True)) as records:
        async with asyncio.timeout(5):
            async for record in records:
                seen.append(record.seq)
                if record.seq == 1:
                    await log.append([entry("b.2"), entry("a.3")])
                if record.seq == 3:
                    assert record.remaining == 0
                    break
    assert seen == [1, 3]


async def test_get_gives_the_record_of_a_subject_or_none(log: EventLog) -> None:
    await log.append([entry("a.1", "one")])

    found = await log.get("run1.a.1")

    assert found == (await everything(log))[0]
    assert await log.get("run1.a.2") is None


async def test_what_no_log_would_take_is_refused_before_it_is_sent(log: EventLog) -> None:
    big = Entry("run1.a.9", "9", b"x" * (6 * 2**20 + 1))
    with pytest.raises(LogTooLarge, match=r"run1\.a\.9 \(id 9\) has 6291457 bytes.*artifact store"):
        await log.append([big])
    with pytest.raises(LogTooLarge, match="1001 entries"):
        await log.append([entry(f"a.{n}") for n in range(1001)])
    with pytest.raises(ValueError, match="twice"):
        await log.append([entry("a.1"), entry("a.1")])
    for subject in ("run2.a.1", "run1.A.1", "run1.*.1", "run1.a b", "run1."):
        with pytest.raises(ValueError, match="subject"):
            await log.append([Entry(subject, "1", b"")])
    assert await log.last_seq() == 0


async def test_the_largest_entry_and_the_largest_batch_fit(log: EventLog) -> None:
    largest = Entry("run1.a.0", "0", b"x" * (6 * 2**20))
    await log.append([largest])
    await log.append([entry(f"b.{n}") for n in range(1000)])
    await append_in_parts(log, [entry(f"c.{n}") for n in range(1001)])

    records = await everything(log)
    assert len(records[0].data) == 6 * 2**20
    assert [r.subject for r in records[-1001:]] == [f"run1.c.{n}" for n in range(1001)]
    assert len(records) == 2002


async def test_a_queue_gives_each_work_message_to_one_worker(log: EventLog) -> None:
    await log.append([entry(f"{'ab'[n % 2]}.{n}") for n in range(6)])
    queues = [await log.work("solver", ("run1.b.*",)) for _ in range(2)]

    taken = [await queues[n % 2].next(1.0) for n in range(3)]

    assert [d.stored.seq if d else None for d in taken] == [2, 4, 6]
    assert [d.deliveries if d else None for d in taken] == [1, 1, 1]
    assert await queues[0].next(0.05) is None
    for delivery in taken:
        assert delivery is not None
        await delivery.ack()
    await log.append([entry("b.9")])
    later = await queues[1].next(1.0)
    assert later is not None
    assert later.stored.seq == 7
    for queue in queues:
        await queue.close()


async def test_work_comes_again_after_its_wait_unless_progress_is_shown(log: EventLog) -> None:
    await log.append([entry("b.1"), entry("b.2")])
    queue = await log.work("solver", ("run1.b.*",), ack_wait_s=0.6)
    first, second = await queue.next(1.0), await queue.next(1.0)
    assert first is not None
    assert second is not None

    for _ in range(4):
        await asyncio.sleep(0.25)
        await first.progress()
    again = await queue.next(1.0)

    assert again is not None
    assert (again.stored.seq, again.deliveries) == (2, 2)
    await again.ack()
    await first.ack()
    assert await queue.next(0.8) is None
    await queue.close()


async def test_handed_back_work_comes_again_after_the_delay_asked_for(log: EventLog) -> None:
    await log.append([entry("b.1")])
    queue = await log.work("solver", ("run1.b.*",))
    delivery = await queue.next(1.0)
    assert delivery is not None

    await delivery.nak(0.4)
    assert await queue.next(0.15) is None
    again = await queue.next(2.0)
    assert again is not None
    await again.nak()
    at_once = await queue.next(1.0)

    assert at_once is not None
    assert (at_once.stored.seq, at_once.deliveries) == (1, 3)
    await queue.close()


async def test_work_in_flight_is_bounded_over_all_workers(log: EventLog) -> None:
    await log.append([entry("b.1"), entry("b.2")])
    one, two = [await log.work("trainer", ("run1.b.*",), in_flight_max=1) for _ in range(2)]
    delivery = await one.next(1.0)
    assert delivery is not None

    assert await two.next(0.2) is None
    await delivery.ack()
    second = await two.next(1.0)

    assert second is not None
    assert second.stored.seq == 2
    await one.close()
    await two.close()


async def test_a_cancelled_wait_for_work_loses_none(log: EventLog) -> None:
    queue = await log.work("solver", ("run1.b.*",))
    waiting = asyncio.create_task(queue.next(10.0))
    await asyncio.sleep(0.1)
    waiting.cancel()
    await asyncio.wait({waiting})

    await log.append([entry("b.1")])
    delivery = await queue.next(2.0)

    assert delivery is not None
    assert (delivery.stored.seq, delivery.deliveries) == (1, 1)
    await queue.close()
