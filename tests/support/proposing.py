"""A proposer's handler over an in-memory log, with a validator that answers draft checks, really or by a script."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.codec import same_body
from schemas.messages import (
    CheckpointPublished,
    DraftChecked,
    DraftCheckRequested,
    EnvAbandoned,
    EnvProposed,
    EnvRequested,
    Message,
    RolloutRequested,
)
from schemas.outcomes import CheckpointReason, Direction, Role
from schemas.parked import masked_rollout
from schemas.parts import Arm, Assignment, RosterEntry
from schemas.science import ProposalRules, RolloutRules, Science
from services.kernel.agent.conversation import Observation
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import Answer, Speaker, read_event
from services.kernel.memory import MemoryLog
from services.kernel.workshop import Workshop
from services.proposer.authoring.procedural import BRAINS, Brain
from services.proposer.handler import ProposerHandler
from services.solver.handler import SolverHandler
from services.validator.handler import ValidatorHandler
from tests.support.chat_server import ChatServer
from tests.support.feeding import as_event
from tests.support.spoken import Line, SpokenEngine
from tests.support.tiny_model import tiny_checkpoint

RUN = "test"
Judge = Callable[[DraftCheckRequested], DraftChecked]
ENTRY = RosterEntry(name="mine", model="procedural")
RULES = ProposalRules(turns_max=40, cpu_s=20.0)


class RecordingStore(ArtifactStore):
    """A store that knows what was read from it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read: list[str] = []

    def get(self, digest: str) -> bytes:
        self.read.append(digest)
        return super().get(digest)


@dataclass
class Bench:
    shop: Workshop
    folder: Path

    def __post_init__(self) -> None:
        self.log = MemoryLog(RUN, same_body)
        self.store = RecordingStore(self.folder / "artifacts")
        self.store.create()
        self.heard: list[Observation] = []
        self.answers: list[Answer] = []
        self.endpoints = self.folder / "endpoints.toml"

    def connect(self, server: ChatServer, **more: object) -> None:
        """The endpoint `local` is this server, from the next session on."""
        lines = [f"{name} = {json.dumps(value)}" for name, value in {"url": server.url, "tries_max": 1, **more}.items()]
        self.endpoints.write_text("\n".join(["[local]", *lines, ""]))

    async def handle(self, request: Message, brains: Mapping[str, Brain] = BRAINS) -> EnvProposed | EnvAbandoned:
        handler = ProposerHandler(
            log=self.log,
            speaker=Speaker(RUN, Role.proposer),
            artifacts=self.store,
            workshop=self.shop,
            rules=RULES,
            work=self.folder / "sessions",
            endpoints=self.endpoints,
            brains=brains,
        )
        (answer,) = await handler.handle(as_event(request), 1)
        self.answers.append(answer)
        assert isinstance(answer.message, EnvProposed | EnvAbandoned)
        assert answer.meta.observation is not None
        assert answer.meta.cpu_s is not None
        assert answer.meta.cpu_s > 0
        return answer.message

    def saying(self, *commands: str) -> Mapping[str, Brain]:
        """A brain that says these commands and ends."""

        def script(arm: Arm = "terminal") -> Generator[str, Observation, None]:
            for command in commands:
                self.heard.append((yield command))

        return {"procedural": script}

    @asynccontextmanager
    async def validating(self, judge: Judge | None = None) -> AsyncIterator[None]:
        async with beside(self.validate(judge)):
            yield

    async def validate(self, judge: Judge | None = None) -> None:
        """Answers draft checks on the log, as a validator does; without `judge` with the real gates."""
        validator = ValidatorHandler(
            run=RUN, log=self.log, artifacts=self.store, workshop=self.shop, grams={}, science=Science()
        )
        async with aclosing(self.log.read(0, (f"{RUN}.draft_check_requested.>",), follow=True)) as records:
            async for stored in records:
                event = read_event(RUN, stored)
                assert isinstance(event.body, DraftCheckRequested)
                said = judge(event.body) if judge else (await validator.handle(event, 1))[0].message
                await self.log.append([Speaker(RUN, Role.validator).entry(said)])

    async def solve(self, *rows: Sequence[Line], broken: bool = False) -> None:
        """Answers tries on the log, as a solver does whose attempts say these lines."""
        engine = SpokenEngine(tiny_checkpoint().template, rows)
        solver = SolverHandler(self.store, self.shop, RolloutRules(), lambda _: (engine, engine.template))
        async with aclosing(self.log.read(0, (f"{RUN}.rollout_requested.>",), follow=True)) as records:
            async for stored in records:
                event = read_event(RUN, stored)
                assert isinstance(event.body, RolloutRequested)
                speaker = Speaker(RUN, Role.solver)
                if broken:
                    masked = [
                        masked_rollout(event.body, place, "x", broken=True) for place in range(event.body.attempts)
                    ]
                    await self.log.append([speaker.entry(each) for each in masked])
                else:
                    answers = await solver.handle(event, 1)
                    await self.log.append([speaker.entry(each.message, meta=each.meta) for each in answers])

    async def publish(self) -> CheckpointPublished:
        """Version 0 of the solver."""
        body = CheckpointPublished(
            role=Role.solver,
            checkpoint_version=0,
            checkpoint=self.store.put(tiny_checkpoint().archive),
            state=None,
            parent=None,
            reason=CheckpointReason.cold_start,
            metrics={},
        )
        await self.log.append([Speaker(RUN, Role.trainer).entry(body)])
        return body


@asynccontextmanager
async def beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs it as long as the block lasts. Raises what it raised."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(ended, asyncio.CancelledError), f"it ended by itself: {ended!r}"


def request(**changes: object) -> EnvRequested:
    settings: dict[str, object] = {
        "round": 1,
        "slot": 3,
        "revision": 0,
        "assignment": Assignment(direction=Direction.new, domain="text", seed=11),
        "entry": ENTRY,
        "pool_version": 0,
        "checkpoint_version": 0,
        "memory": (),
    }
    return EnvRequested(**{**settings, **changes})  # type: ignore[arg-type] # by name: the tests' own choice
