"""The whole wheel over one in-memory log: real decider and worker loops, answers by script, unruly delivery."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from schemas.codec import same_body
from schemas.envelope import Event
from schemas.messages import Message, RunFinished
from schemas.outcomes import Role
from schemas.topology import DECIDERS, decider_patterns, work_patterns
from services.kernel.decider import Decider
from services.kernel.delivery import Answer, Speaker, read_event
from services.kernel.log import Stored
from services.kernel.memory import MemoryLog
from services.kernel.worker import Worker, WorkRules
from tests.support.script import Script
from tests.support.wheel import POLICIES, RUN

PATIENCE_S = 60.0
REPLICAS = {Role.proposer: 2, Role.validator: 1, Role.solver: 3, Role.trainer: 1}


@dataclass
class UnrulyQueue:
    """A work queue that delivers every message twice, each time to whoever asks, in an order that chance decides."""

    log: MemoryLog
    subjects: tuple[str, ...]
    chance: random.Random
    waiting: list[Stored] = field(default_factory=list)
    position: int = 0
    delivered: list[str] = field(default_factory=list)

    async def next(self, timeout_s: float) -> "UnrulyDelivery | None":
        async with aclosing(self.log.read(self.position, self.subjects)) as records:
            new = [stored async for stored in records]
        if new:
            self.position = new[-1].seq
            self.waiting += [*new, *new]
        if not self.waiting:
            try:
                async with asyncio.timeout(timeout_s):
                    await self.log.changed.wait()
            except TimeoutError:
                return None
            return await self.next(timeout_s)
        stored = self.waiting.pop(self.chance.randrange(len(self.waiting)))
        self.delivered.append(stored.subject)
        return UnrulyDelivery(self, stored, self.delivered.count(stored.subject))

    async def close(self) -> None:
        """Others still take from it."""


@dataclass(frozen=True)
class UnrulyDelivery:
    queue: UnrulyQueue
    stored: Stored
    deliveries: int

    async def ack(self) -> None:
        """The second delivery comes all the same."""

    async def nak(self, delay_s: float = 0.0) -> None:
        """Comes again at once, whatever delay was asked for."""
        self.queue.waiting.append(self.stored)
        self.queue.log.notify()

    async def progress(self) -> None:
        """Nothing runs out here."""


@dataclass
class ScriptedHandler:
    """Answers by script after a drawn number of turns of the loop, so that work overlaps."""

    script: Script
    chance: random.Random
    bend: Callable[[Message], Message]

    async def handle(self, event: Event, try_: int) -> Sequence[Answer]:
        for _ in range(self.chance.randrange(20)):
            await asyncio.sleep(0)
        return [Answer(self.bend(message)) for message in self.script.answer(event.body)]


@dataclass
class MemoryWheel:
    """Start it with `turning`; `order` decides who is served when, and must decide nothing else."""

    order: int = 0
    script: Script = field(default_factory=Script)
    bend: Callable[[Message], Message] = lambda message: message
    replicas: dict[Role, int] = field(default_factory=lambda: dict(REPLICAS))
    log: MemoryLog = field(default_factory=lambda: MemoryLog(RUN, same_body))
    deciders: list[Decider[object]] = field(default_factory=list)
    queues: dict[Role, UnrulyQueue] = field(default_factory=dict)

    async def say(self, *messages: Message) -> None:
        for message in messages:
            await self.log.append([Speaker(RUN, Role.operator).entry(message)])

    async def turn(self, opening: Sequence[Message]) -> list[Event]:
        """To the end of the run. Raises what a loop raises."""
        await self.say(*opening)
        stop = asyncio.Event()
        tasks = [asyncio.create_task(loop) for loop in self.loops(stop)]
        done = asyncio.create_task(self.finished())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait({done, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.05)
        finally:
            stop.set()
            for task in [done, *tasks]:
                task.cancel()
            await asyncio.gather(done, *tasks, return_exceptions=True)
        return await self.events()

    def loops(self, stop: asyncio.Event) -> list[Coroutine[Any, Any, None]]:
        """For each replica of each role its decider and its worker, in turns; workers share the queue of their role."""
        chance = random.Random(self.order)
        found: list[Coroutine[Any, Any, None]] = []
        for role in DECIDERS:
            queue = self.queues.setdefault(role, UnrulyQueue(self.log, work_patterns(RUN, role), chance))
            for replica in range(self.replicas[role]):
                speaker = Speaker(RUN, role, replica=str(replica))
                decider: Decider[object] = Decider(self.log, POLICIES[role], speaker, decider_patterns(RUN, role))
                handler = ScriptedHandler(self.script, chance, self.bend)
                worker = Worker(self.log, queue, handler, speaker, WorkRules(slots=3, drain_s=1.0))
                self.deciders.append(decider)
                found += [decider.run(), worker.run(stop)]
        return found

    async def finished(self) -> None:
        async with aclosing(self.log.read(0, (f"{RUN}.{RunFinished.name}.>",), follow=True)) as records:
            async for _ in records:
                return

    async def events(self) -> list[Event]:
        return [read_event(RUN, stored) async for stored in self.log.read()]
