"""The log and the artifacts of a run, running or not, and the operator's voice on it."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from schemas.codec import encode, same_body
from schemas.envelope import Event, Meta
from schemas.messages import Message, RunStarted
from schemas.outcomes import Role
from schemas.subjects import subject_of
from services.cli.folder import RunFolder, State
from services.cli.outcome import CliError, Exit
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import read_event
from services.kernel.jetstream_log import connect
from services.kernel.log import Entry, EventLog, LogConflict, Stored
from services.kernel.nats_server import NatsServer

ORDINAL_TRIES_MAX = 20
STARTING_S = 20.0
"""From the lock of a mesh to its run.json."""


@dataclass
class OpenRun:
    """A run whose log can be read now. `live`: its mesh runs."""

    folder: RunFolder
    name: str
    log: EventLog
    artifacts: ArtifactStore
    live: bool

    async def records(self) -> list[Stored]:
        return [stored async for stored in self.log.read()]

    async def events(self) -> list[Event]:
        """All of the log, decoded. Raises Unreadable for a record that this code may not read."""
        return [read_event(self.name, stored) async for stored in self.log.read()]


@asynccontextmanager
async def open_run(folder: RunFolder) -> AsyncIterator[OpenRun]:
    """Joins the server of a running mesh; else starts one on the store for as long as this lasts."""
    if folder.is_running():
        async with joined(folder, (await _told(folder)).url, live=True) as run:
            yield run
        return
    with folder.held("read"), NatsServer(folder.nats) as server:
        async with joined(folder, server.url, live=False) as run:
            yield run


async def _told(folder: RunFolder) -> State:
    """What the mesh that runs now says of itself; it says nothing before its server and its log are ready."""
    until = time.monotonic() + STARTING_S
    while time.monotonic() < until:
        holder, state = folder.holder(), folder.state()
        if holder is not None and state is not None and state.pid == holder.pid:
            return state
        await asyncio.sleep(0.1)
    raise CliError(f"{folder.root} has not come up in {STARTING_S:g} s: try again", Exit.infrastructure)


@asynccontextmanager
async def joined(folder: RunFolder, url: str, *, live: bool, create: bool = False) -> AsyncIterator[OpenRun]:
    """`create` makes the stream where it is missing."""
    name = folder.file().deployment.name
    log = await connect(url, name, same_body, create=create, name="envwheel-cli")
    try:
        yield OpenRun(folder, name, log, ArtifactStore(folder.artifacts), live)
    finally:
        await log.close()


def entry(run: str, message: Message, *, engine: str | None = None) -> Entry:
    """An operator's record."""
    meta = Meta(
        at_ns=time.time_ns(),
        host=socket.gethostname(),
        service=Role.operator.value,
        replica=str(os.getuid()),
        engine=engine,
    )
    return Entry(subject_of(run, message), message.id, encode(message, meta))


async def say_next(run: OpenRun, first: int, make: Callable[[int], Message]) -> Message:
    """Appends an operator's message under the first free ordinal from `first` on. A taken one means: take the next."""
    for ordinal in range(first, first + ORDINAL_TRIES_MAX):
        message = make(ordinal)
        try:
            if (await run.log.append([entry(run.name, message)])).stored:
                return message
        except LogConflict:
            continue
    raise CliError("others write to the log at the same moment: try again", Exit.infrastructure)


def started(events: list[Event]) -> RunStarted:
    for event in events:
        if isinstance(event.body, RunStarted):
            return event.body
    raise CliError("this run has not started yet: its log holds no RunStarted")


def pick(what: str, beginning: str, known: list[str]) -> str:
    """The one id or digest that begins so."""
    if len(beginning) < 6:
        raise CliError(f"{what} {beginning!r}: give at least 6 digits")
    found = sorted({each for each in known if each.startswith(beginning.lower())})
    if len(found) != 1:
        how_many = f"{len(found)} of them begin" if found else f"no {what} begins"
        raise CliError(f"{what} {beginning!r}: {how_many} so")
    return found[0]
