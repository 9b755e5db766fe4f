"""Operations: groups of rollouts by two services, each a worker and a decider, while they and the server are killed.

Invariants, proved from the log afterwards: each request has its whole answer once and nothing else; each answer has the
body that its request gives; each try was noted before; the decider's messages are there once, and all of them.
"""

import asyncio
import random
import sys
from asyncio.subprocess import Process
from collections import Counter
from functools import partial

import pytest

from schemas.codec import same_body
from schemas.messages import PoolChanged, RolloutCompleted, RosterChanged, WorkFailed, WorkParked, WorkStarted
from services.kernel.jetstream_log import connect
from services.kernel.log import EventLog
from services.kernel.nats_server import NatsServer
from tests.support.delivery import RUN, bodies, pool, request, rollouts, roster, say, until
from tests.support.nats import nats_server

REQUESTS = 40
SERVICE = """
import asyncio, random, sys
from schemas.codec import same_body
from schemas.messages import RosterChanged
from schemas.outcomes import Role
from schemas.topology import decider_patterns, work_patterns
from services.kernel.decider import Decider
from services.kernel.delivery import Answer
from services.kernel.jetstream_log import connect
from services.kernel.worker import Worker, WorkRules
from tests.support.delivery import RUN, pool, rollouts, speaker

class Slow:
    async def handle(self, event, try_):
        await asyncio.sleep(random.uniform(0.0, 0.15))
        return [Answer(message) for message in rollouts(event.body)]

class Policy:
    def initial(self):
        return 0
    def fold(self, view, event):
        return view + 1
    def decide(self, view, event):
        return [pool(event.body.ordinal)] if isinstance(event.body, RosterChanged) else []

async def main(url, replica):
    log = await connect(url, RUN, same_body)
    me = speaker(Role.solver, replica)
    queue = await log.work("solver", work_patterns(RUN, Role.solver), ack_wait_s=1.0)
    worker = Worker(log, queue, Slow(), me, WorkRules(slots=2, ack_wait_s=1.0))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.run(asyncio.Event()))
        tasks.create_task(Decider(log, Policy(), me, decider_patterns(RUN, Role.solver)).run())

asyncio.run(main(*sys.argv[1:]))
"""


async def start(url: str, replica: int) -> Process:
    return await asyncio.create_subprocess_exec(sys.executable, "-c", SERVICE, url, str(replica))


@pytest.mark.parametrize("seed", [1])
async def test_all_work_is_answered_once_whatever_is_killed(seed: int) -> None:
    chance = random.Random(seed)
    with nats_server() as server:
        log = await connect(server.url, RUN, same_body, create=True)
        services = [await start(server.url, replica) for replica in range(2)]
        try:
            await say(log, *(request(n) for n in range(REQUESTS)), *(roster(n) for n in range(10)))
            await disturb(log, server, services, chance)
            await until(partial(is_done, log), patience_s=40.0)
        finally:
            for service in services:
                service.kill()
                await service.wait()
        await check(log)
        await log.close()


async def disturb(log: EventLog, server: NatsServer, services: list[Process], chance: random.Random) -> None:
    """Kills each service and the server twice, each time while work is in hand."""
    for victim in (0, 1, None, 0, 1, None):
        goal = min(await answers(log) + 4, 2 * REQUESTS - 8)
        await until(partial(reached, log, goal))
        if victim is None:
            server.kill()
            await asyncio.sleep(chance.uniform(0.0, 0.2))
            server.start()
        else:
            assert services[victim].returncode is None
            services[victim].kill()
            await services[victim].wait()
            services[victim] = await start(server.url, victim)


async def answers(log: EventLog) -> int:
    return len(await bodies(log, RolloutCompleted))


async def reached(log: EventLog, goal: int) -> bool:
    return await answers(log) >= goal


async def is_done(log: EventLog) -> bool:
    return await answers(log) == 2 * REQUESTS and len(await bodies(log, PoolChanged)) == 10


async def check(log: EventLog) -> None:
    completed = await bodies(log, RolloutCompleted)
    wanted = [message for n in range(REQUESTS) for message in rollouts(request(n))]
    assert sorted(completed, key=lambda m: m.id) == sorted(wanted, key=lambda m: m.id)
    tries = Counter(note.work_id for note in await bodies(log, WorkStarted) if isinstance(note, WorkStarted))
    assert set(tries) == {request(n).id for n in range(REQUESTS)}
    assert max(tries.values()) > 1, "no kill hit work in hand"
    assert await bodies(log, WorkFailed, WorkParked) == []
    rosters = [m.ordinal for m in await bodies(log, RosterChanged) if isinstance(m, RosterChanged)]
    assert await bodies(log, PoolChanged) == [pool(ordinal) for ordinal in rosters]
