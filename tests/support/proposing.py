"""A proposer's handler over an in-memory log, with a validator that answers draft checks, really or by a script."""

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from schemas.codec import same_body
from schemas.messages import DraftChecked, DraftCheckRequested, EnvAbandoned, EnvProposed, EnvRequested, Message
from schemas.outcomes import Direction, Role
from schemas.parts import Arm, Assignment, RosterEntry
from schemas.science import ProposalRules, Science
from services.kernel.agent.conversation import Observation
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import Answer, Speaker, read_event
from services.kernel.memory import MemoryLog
from services.kernel.workshop import Workshop
from services.proposer.authoring.procedural import BRAINS, Brain
from services.proposer.handler import ProposerHandler
from services.validator.handler import ValidatorHandler
from tests.support.chat_server import ChatServer
from tests.support.feeding import as_event

RUN = "test"
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

    async def validate(self, judge: Callable[[DraftCheckRequested], DraftChecked] | None = None) -> None:
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
