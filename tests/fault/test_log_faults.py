"""Operations: single and batch appends by several client processes, while server and clients are killed (SIGKILL).

Invariants, proved from the log afterwards: nothing acknowledged is lost or moved; no subject is there twice; no batch
is there in part; positions have no hole; a reader that followed all the while saw exactly the log.
"""

import asyncio
import random
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from contextlib import aclosing

import pytest

from services.kernel.jetstream_log import connect
from services.kernel.log import EventLog
from services.kernel.nats_server import NatsServer
from tests.support.nats import nats_server

BATCH = 7
CLIENT = f"""
import asyncio, sys
from services.kernel.jetstream_log import connect
from services.kernel.log import Entry

async def main(url, name, first):
    log = await connect(url, "run1", lambda stored, mine: stored == mine, patience_s=20.0)
    for n in range(int(first), 10**9):
        size = {BATCH} if n % 2 else 1
        entries = [Entry(f"run1.w{{name}}.{{n}}.{{i}}", str(i), b"%d of %d" % (i, size)) for i in range(size)]
        appended = await log.append(entries)
        print(n, *appended.seqs, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


class Writers:
    """Client processes that append for ever; each start takes up where the last one was, its last append included."""

    def __init__(self, url: str, count: int) -> None:
        self._url = url
        self.acknowledged: list[dict[int, tuple[int, ...]]] = [{} for _ in range(count)]
        self._processes: list[Process | None] = [None] * count
        self._listening: list[asyncio.Task[None]] = []

    async def start(self, writer: int) -> None:
        first = max(self.acknowledged[writer], default=0)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLIENT, self._url, str(writer), str(first), stdout=PIPE
        )
        self._processes[writer] = process
        self._listening.append(asyncio.create_task(self._listen(writer, process)))

    async def _listen(self, writer: int, process: Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if line.endswith(b"\n"):
                number, *seqs = (int(word) for word in line.split())
                earlier = self.acknowledged[writer].setdefault(number, tuple(seqs))
                assert earlier == tuple(seqs)

    async def kill(self, writer: int) -> None:
        process = self._processes[writer]
        if process is not None:
            assert process.returncode is None
            process.kill()
            await process.wait()

    async def end(self) -> None:
        for writer in range(len(self._processes)):
            await self.kill(writer)
        await asyncio.gather(*self._listening)


async def follow(log: EventLog, seen: list[tuple[int, str, bytes]]) -> None:
    async with aclosing(log.read(follow=True)) as records:
        async for record in records:
            seen.append((record.seq, record.subject, record.data))


@pytest.mark.parametrize("seed", [1, 2])
async def test_what_was_acknowledged_survives_kills_of_server_and_clients(seed: int) -> None:
    chance = random.Random(seed)
    with nats_server() as server:
        log = await connect(server.url, "run1", lambda stored, mine: stored == mine, create=True)
        seen: list[tuple[int, str, bytes]] = []
        following = asyncio.create_task(follow(log, seen))
        writers = Writers(server.url, 2)
        for writer in range(2):
            await writers.start(writer)
        await some_progress(writers)
        for step in range(6):
            await asyncio.sleep(chance.uniform(0.05, 0.3))
            await kill_something(step, chance, server, writers)
            await some_progress(writers)
        await writers.end()

        async with asyncio.timeout(20):
            # A batch of a client that is dead by now may still be on its way into the log.
            while (records := await everything(log)) != seen:  # noqa: ASYNC110 - others move it
                await asyncio.sleep(0.05)
        following.cancel()
        await asyncio.wait({following})
        await log.close()

    check(records, writers.acknowledged)


async def everything(log: EventLog) -> list[tuple[int, str, bytes]]:
    return [(record.seq, record.subject, record.data) async for record in log.read()]


async def kill_something(step: int, chance: random.Random, server: NatsServer, writers: Writers) -> None:
    """Server and clients in turn, so that each is hit at work for sure."""
    if step % 2:
        server.kill()
        await asyncio.sleep(chance.uniform(0.0, 0.3))
        server.start()
    else:
        writer = chance.randrange(2)
        await writers.kill(writer)
        await writers.start(writer)


async def some_progress(writers: Writers) -> None:
    """Until each writer had five more appends acknowledged: every kill hits writers that are at work."""
    goals = [len(acknowledged) + 5 for acknowledged in writers.acknowledged]
    async with asyncio.timeout(30):
        while any(len(a) < goal for a, goal in zip(writers.acknowledged, goals, strict=True)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def check(records: list[tuple[int, str, bytes]], acknowledged: list[dict[int, tuple[int, ...]]]) -> None:
    assert [seq for seq, _, _ in records] == list(range(1, len(records) + 1))
    assert max(Counter(subject for _, subject, _ in records).values()) == 1
    by_seq = {seq: subject for seq, subject, _ in records}
    for writer, appends in enumerate(acknowledged):
        assert len(appends) >= 35
        for number, seqs in appends.items():
            assert [by_seq.get(seq) for seq in seqs] == [f"run1.w{writer}.{number}.{i}" for i in range(len(seqs))]
            assert len(seqs) == (BATCH if number % 2 else 1)
    sizes = Counter(subject.rpartition(".")[0] for _, subject, _ in records)
    assert all(sizes[subject.rpartition(".")[0]] == int(data.split()[-1]) for _, subject, data in records)
