"""Messages and a log for tests of the decider and worker loops."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from schemas.codec import same_body
from schemas.envelope import Event
from schemas.messages import MESSAGES, Message, PoolChanged, RolloutCompleted, RolloutRequested, RosterChanged
from schemas.outcomes import Purpose, Role, RolloutOutcome
from services.kernel.clock import ManualClock
from services.kernel.delivery import Speaker, read_event
from services.kernel.jetstream_log import connect
from services.kernel.log import Entry, EventLog
from services.kernel.memory import MemoryLog
from tests.support.nats import nats_server

RUN = "run1"
PATIENCE_S = 15.0
"""How long a test waits for what should come at once, on a busy machine."""


def speaker(role: Role, replica: str = "1") -> Speaker:
    return Speaker(RUN, role, host="here", replica=replica, clock=ManualClock(10**18))


def request(ordinal: int = 0, *, attempts: int = 2, round_: int = 3) -> RolloutRequested:
    """Work for a solver."""
    return RolloutRequested(
        round=round_,
        env="e" * 64,
        checkpoint_version=1,
        checkpoint="c" * 64,
        purpose=Purpose.train,
        attempts=attempts,
        seed=7,
        ordinal=ordinal,
    )


def rollouts(work: Message, reward: float = 1.0) -> list[RolloutCompleted]:
    """The whole answer to a request, with the rewards given."""
    assert isinstance(work, RolloutRequested)
    return [
        RolloutCompleted(
            round=work.round,
            request=work.id,
            attempt=attempt,
            env=work.env,
            purpose=work.purpose,
            checkpoint_version=work.checkpoint_version,
            outcome=RolloutOutcome.solved if reward == 1.0 else RolloutOutcome.unsolved,
            reward=reward,
            tests={"t": reward == 1.0},
            content=None,
        )
        for attempt in range(work.attempts)
    ]


def roster(ordinal: int) -> RosterChanged:
    return RosterChanged(ordinal=ordinal, role=Role.proposer, entries=())


def pool(version: int, *members: str) -> PoolChanged:
    return PoolChanged(round=version, pool_version=version, members=members, added=(), retired=())


def entry(message: Message, role: Role = Role.operator) -> Entry:
    return speaker(role, "other").entry(message)


async def say(log: EventLog, *messages: Message) -> None:
    for message in messages:
        await log.append([entry(message)])


async def everything(log: EventLog) -> list[Event]:
    return [read_event(RUN, stored) async for stored in log.read()]


async def bodies(log: EventLog, *kinds: type[Message]) -> list[Message]:
    """Bodies on the log, in order; of these kinds only where some are named."""
    names = {kind.name for kind in kinds or MESSAGES}
    return [read_event(RUN, stored).body async for stored in log.read() if stored.subject.split(".")[1] in names]


async def until(holds: Callable[[], Awaitable[bool]], *, patience_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(patience_s):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.01)


@asynccontextmanager
async def open_log(kind: str) -> AsyncIterator[EventLog]:
    if kind == "memory":
        yield MemoryLog(RUN, same_body)
        return
    with nats_server() as server:
        log = await connect(server.url, RUN, same_body, create=True, patience_s=10.0)
        yield log
        await log.close()
