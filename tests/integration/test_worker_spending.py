"""What tries spend is said whatever becomes of them: answered, failed, too late, or killed in the middle."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from schemas.codec import same_body
from schemas.envelope import Event, Meta
from schemas.messages import RolloutCompleted, WorkFailed, WorkStarted
from schemas.outcomes import Role
from schemas.parts import Usage
from schemas.topology import work_patterns
from services.kernel.delivery import Answer
from services.kernel.errors import ArtifactMissing
from services.kernel.jetstream_log import connect
from services.kernel.log import EventLog
from services.kernel.memory import MemoryLog
from services.kernel.spool import Spool, Tried, add_usage, count_tokens
from services.kernel.worker import Handler, Worker, WorkRules
from tests.support.delivery import RUN, bodies, everything, request, rollouts, say, speaker, until
from tests.support.nats import nats_server

TRIED = Tried(subject="run1.rollout_requested.3.train.x", work_id="w", try_=2)
RULES = WorkRules(ack_wait_s=1.0, backoff_s=(0.01,), failures_max=1)


def test_a_try_that_is_not_over_leaves_what_it_has_spent(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    with spool.trying(TRIED) as tally:
        count_tokens(prompt_tokens=10, cached_tokens=4, completion_tokens=3)
        assert spool.left() == [], "a living process is at it"
        count_tokens(completion_tokens=2)
        assert tally.usage == Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=5)
    [left] = spool.left()
    assert (left.tried, left.usage) == (TRIED, tally.usage)
    left.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_try_that_is_over_leaves_nothing(tmp_path: Path) -> None:
    with Spool(tmp_path).trying(TRIED) as tally:
        tally.over = True
    count_tokens(prompt_tokens=1)
    assert tally.usage == Usage()
    assert list(tmp_path.iterdir()) == []


def test_a_line_that_was_cut_off_is_left_out_and_a_damaged_file_is_unknown(tmp_path: Path) -> None:
    whole = msgspec.json.encode(TRIED) + b"\n" + msgspec.json.encode(Usage(prompt_tokens=7)) + b"\n"
    (tmp_path / "a.1.try").write_bytes(whole + b'{"prompt_to')
    (tmp_path / "b.1.try").write_bytes(b"")
    (tmp_path / "c.1.try").write_bytes(b"no json\n")
    found = [(left.tried, left.usage) for left in Spool(tmp_path).left()]
    assert found == [(TRIED, Usage(prompt_tokens=7)), (None, Usage()), (None, None)]


def test_where_the_disk_takes_nothing_the_tokens_are_counted_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with Spool(tmp_path / "file" / "below").trying(TRIED) as tally:
        count_tokens(prompt_tokens=3)
    assert tally.usage == Usage(prompt_tokens=3)


def test_usages_are_added_place_by_place() -> None:
    one = Usage(prompt_tokens=1, cached_tokens=2, completion_tokens=3, turns=4)
    assert add_usage(one, one) == Usage(prompt_tokens=2, cached_tokens=4, completion_tokens=6, turns=8)


class Fails:
    """Asks a model, then fails; a task that it starts asks too."""

    async def handle(self, event: Event, try_: int) -> Sequence[Answer]:
        async def ask() -> None:
            count_tokens(prompt_tokens=30, completion_tokens=1)

        count_tokens(prompt_tokens=100, cached_tokens=50, completion_tokens=20)
        async with asyncio.TaskGroup() as group:
            group.create_task(ask())
        if event.body.id == request(1).id:
            raise ArtifactMissing("ab", "no such file")
        return [Answer(message, Meta(cpu_s=0.5)) for message in rollouts(event.body)]


async def work(log: EventLog, handler: Handler, spool: Spool, *, until_: int) -> None:
    """Until so many answers and failures are there."""
    queue = await log.work("solver", work_patterns(RUN, Role.solver), ack_wait_s=RULES.ack_wait_s)
    stop = asyncio.Event()
    working = asyncio.create_task(Worker(log, queue, handler, speaker(Role.solver), RULES, spool).run(stop))

    async def enough() -> bool:
        return working.done() or len(await bodies(log, RolloutCompleted, WorkFailed)) >= until_

    await until(enough)
    stop.set()
    await working


async def test_a_failed_try_says_its_tokens_and_an_answer_its_try(tmp_path: Path) -> None:
    log = MemoryLog(RUN, same_body)
    await say(log, request(1), request(2))
    await work(log, Fails(), Spool(tmp_path / "tries"), until_=3)
    [failed] = [event for event in await everything(log) if isinstance(event.body, WorkFailed)]
    assert isinstance(failed.body, WorkFailed)
    assert failed.body.usage == Usage(prompt_tokens=130, cached_tokens=50, completion_tokens=21)
    assert failed.meta.wall_s is not None
    answers = [event for event in await everything(log) if isinstance(event.body, RolloutCompleted)]
    assert [event.meta.try_ for event in answers] == [1, 1]
    assert list((tmp_path / "tries").iterdir()) == []


class TooLate:
    """Somebody else answers while it works."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    async def handle(self, event: Event, try_: int) -> Sequence[Answer]:
        await say(self._log, rollouts(event.body, reward=0.0)[0])
        spent = Usage(prompt_tokens=40, completion_tokens=2)
        return [
            Answer(msgspec.structs.replace(message, usage=spent), Meta(cpu_s=0.5), deterministic=False)
            for message in rollouts(event.body)
        ]


async def test_an_answer_that_comes_too_late_says_what_it_has_cost(tmp_path: Path) -> None:
    log = MemoryLog(RUN, same_body)
    await say(log, request(1))
    await work(log, TooLate(log), Spool(tmp_path), until_=3)
    [failed] = [event for event in await everything(log) if isinstance(event.body, WorkFailed)]
    assert isinstance(failed.body, WorkFailed)
    assert (failed.body.error.kind, failed.meta.cpu_s) == ("superseded", 0.5)
    assert failed.body.usage == Usage(prompt_tokens=40, completion_tokens=2), "of the one that was lost alone"
    assert len(await bodies(log, RolloutCompleted)) == 2


KILLED = """
import asyncio, sys
from pathlib import Path
from schemas.codec import same_body
from schemas.outcomes import Role
from schemas.topology import work_patterns
from services.kernel.jetstream_log import connect
from services.kernel.spool import Spool, count_tokens
from services.kernel.worker import Worker
from tests.support.delivery import RUN, speaker

class Hangs:
    async def handle(self, event, try_):
        count_tokens(prompt_tokens=70, completion_tokens=5)
        print("asked", flush=True)
        await asyncio.sleep(600)

async def main(url, folder):
    log = await connect(url, RUN, same_body)
    queue = await log.work("solver", work_patterns(RUN, Role.solver), ack_wait_s=1.0)
    await Worker(log, queue, Hangs(), speaker(Role.solver), spool=Spool(Path(folder))).run(asyncio.Event())

asyncio.run(main(*sys.argv[1:]))
"""


class Solves:
    async def handle(self, event: Event, try_: int) -> Sequence[Answer]:
        return [Answer(message) for message in rollouts(event.body)]


@pytest.mark.parametrize("answered", [False, True], ids=["open", "answered by the killed try"])
async def test_a_killed_try_is_told_of_by_the_next_process_as_a_kill(tmp_path: Path, answered: bool) -> None:
    with nats_server() as server:
        log = await connect(server.url, RUN, same_body, create=True)
        await say(log, request(1))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", KILLED, server.url, str(tmp_path), stdout=asyncio.subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(30):
                assert await process.stdout.readline() == b"asked\n"
        finally:
            process.kill()
            await process.wait()
        if answered:
            first = speaker(Role.solver)
            await log.append([first.entry(message, meta=Meta(try_=1)) for message in rollouts(request(1))])
        await work(log, Solves(), Spool(tmp_path), until_=2 if answered else 3)
        failed = await bodies(log, WorkFailed)
        started = await bodies(log, WorkStarted)
        await log.close()
    assert Spool(tmp_path).left() == []
    if answered:
        assert (failed, len(started)) == ([], 1)
        return
    [told] = failed
    assert isinstance(told, WorkFailed)
    assert (told.try_, told.error.kind) == (1, "cut_off")
    assert told.usage == Usage(prompt_tokens=70, completion_tokens=5)
    assert len(started) == 2, "a kill is no failure: with one failure allowed the work would have been parked"
