"""A mesh of scripted service processes over a real nats-server, which can be killed piece by piece while it works."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from schemas.codec import decode, encode, same_body
from schemas.envelope import Event, Meta
from schemas.messages import Message, RunFinished, WorkStarted
from schemas.outcomes import Role
from schemas.subjects import subject_of
from services.kernel.jetstream_log import JetStreamLog, connect
from services.kernel.log import Entry
from services.kernel.nats_server import NatsServer
from services.kernel.options import ServiceOptions
from tests.support.tree import ROOT

RUN = "test"
NATS = "nats"
ACK_WAIT_S = 1.0


@dataclass
class Mesh:
    folder: Path
    server: NatsServer
    log: JetStreamLog
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """By place, `<role>-<replica>`. A place has one life after the other; a kill ends a life."""
    lives: dict[str, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self, role: Role, replica: int) -> None:
        place = f"{role.value}-{replica}"
        self.lives[place] = self.lives.get(place, 0) + 1
        life = f"{place}.{self.lives[place]}"
        options = ServiceOptions(
            run=RUN,
            nats_url=self.server.url,
            artifacts=self.folder / "artifacts",
            work=self.folder / place,
            replica=life,
            ack_wait_s=ACK_WAIT_S,
            slots=2,
        )
        described = self.folder / f"{life}.json"
        described.write_bytes(msgspec.json.encode(options, enc_hook=str))
        with (self.folder / f"{life}.log").open("ab") as log:
            self.processes[place] = subprocess.Popen(
                [sys.executable, "-m", "tests.support.scripted_service", role.value, str(described)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )

    def kill(self, place: str) -> None:
        """SIGKILL, and a fresh start in its place."""
        if place == NATS:
            self.server.kill()
            self.server.start()
            return
        process = self.processes[place]
        process.send_signal(signal.SIGKILL)
        process.wait()
        role, replica = place.split("-")
        self.start(Role(role), int(replica))

    def in_flight(self) -> dict[str, set[str]]:
        """Works that a living replica has started and not answered or noted as failed, by place."""
        open_: dict[str, set[str]] = {}
        ended = {event.meta.cause or "" for event in self.events if not isinstance(event.body, WorkStarted)}
        for event in self.events:
            body = event.body
            if isinstance(body, WorkStarted) and body.work_id not in ended:
                place, _, life = event.meta.replica.partition(".")
                if self.lives.get(place) == int(life):
                    open_.setdefault(place, set()).add(body.work_id)
        return open_

    async def follow(self) -> None:
        async for stored in self.log.read(0, follow=True):
            event = decode(stored.data, subject=stored.subject, seq=stored.seq)
            self.events.append(event)
            if isinstance(event.body, RunFinished):
                self.finished.set()

    async def say(self, messages: list[Message]) -> None:
        await self.log.append(
            [Entry(subject_of(RUN, message), message.id, encode(message, Meta())) for message in messages]
        )


@asynccontextmanager
async def mesh(folder: Path, opening: list[Message], replicas: dict[Role, int]) -> AsyncIterator[Mesh]:
    """Started with the opening on its log, followed until the end of the block; everything is gone afterwards."""
    server = NatsServer(folder / NATS)
    server.start()
    log = await connect(server.url, RUN, same_body, create=True)
    running = Mesh(folder, server, log)
    following = asyncio.create_task(running.follow())
    try:
        await running.say(opening)
        for role, count in replicas.items():
            for replica in range(count):
                running.start(role, replica)
        yield running
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        for process in running.processes.values():
            process.kill()
            process.wait()
        await log.close()
        server.kill()
