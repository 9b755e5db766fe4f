"""One life of a mesh: hold the folder, start what is missing, follow the log until the run or the operator ends it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from schemas.messages import RunFinished, RunStarted
from schemas.science import Science
from services.cli import genesis
from services.cli.connect import OpenRun, joined
from services.cli.folder import RunFolder
from services.cli.live import Live
from services.cli.mesh import Mesh, build
from services.cli.outcome import CliError, Exit, say
from services.cli.seeds import UNKNOWN_LICENCE, say_imports
from services.cli.users import GID, Users, choose_users
from services.kernel.delivery import read_event
from services.kernel.log import EventLog
from services.kernel.nats_server import NatsServer
from services.kernel.runfile import RunFile, first_difference
from services.kernel.sandbox.base import Base
from services.kernel.workshop import choose_base

REPORT_WAIT_S = 60.0
"""For the observer to write the report when the run has finished."""
TICK_S = 0.2


@dataclass
class Turn:
    """What a caller gets when the mesh has ended and the log can still be read."""

    run: OpenRun
    live: Live
    finished: bool
    """False: the operator stopped it, and `up` goes on later."""


@asynccontextmanager
async def turn(
    folder: RunFolder, file: RunFile, *, seeds: Mapping[str, bytes] | None = None, quiet: bool = False
) -> AsyncIterator[Turn]:
    """Runs the mesh to its end; inside the `async with` only nats-server is left. Nothing remains behind it. `seeds`
    are archives of tasks, by name, that a new run begins with.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    with folder.held("start"):
        users = choose_users(file.deployment, folder.root)
        base = find_base(file.deployment.base, folder.root)
        if file.deployment.sandbox == "docker" and base.kind == "host":
            raise CliError("containers cannot show this host's /usr: make a base with `envwheel base build`, name it")
        server = NatsServer(folder.nats)
        server.start()
        mesh = build(folder, file, server, users, f"{base.kind} {base.digest[:16]}")
        try:
            async with joined(folder, server.url, live=True, create=True) as run:
                await _prepare(run, file, base, users, seeds or {})
                live = Live(quiet=quiet)
                _announce(folder, mesh, quiet)
                try:
                    with live:
                        finished = await _follow(mesh, run, live, stop)
                finally:
                    await mesh.end()
                _interruptible(loop)
                yield Turn(run, live, finished)
        finally:
            mesh.end_server()
            mesh.tell()


def _interruptible(loop: asyncio.AbstractEventLoop) -> None:
    """From here on a signal ends whatever runs, as KeyboardInterrupt: nobody looks at `stop` any more."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.remove_signal_handler(number)
        signal.signal(number, signal.default_int_handler)


async def _prepare(run: OpenRun, file: RunFile, base: Base, users: Users, seeds: Mapping[str, bytes]) -> None:
    """A new log gets its beginning; an old one must be about the same science and base."""
    root = run.artifacts.root
    root.mkdir(exist_ok=True)
    if users.separate:
        os.chown(root, -1, GID)
    root.chmod(0o2775)
    run.artifacts.create()
    began = await begun(run.log)
    if began is None:
        await genesis.begin(run.log, run.artifacts, file, base)
        if seeds:
            await say_imports(run, seeds, UNKNOWN_LICENCE)
        return
    if seeds:
        raise CliError("this run has begun: bring more tasks into it with `envwheel import`")
    check_same(began.science, file.science)
    if began.seed != file.seed:
        raise CliError(f"this run began with seed {began.seed}, not {file.seed}: use another --folder for a new run")
    if began.base_digest != base.digest:
        raise CliError(
            f"this run rests on base {began.base_kind} {began.base_digest[:16]}, "
            f"here is {base.kind} {base.digest[:16]}: name the base that it began with in [deployment]",
            Exit.infrastructure,
        )


async def begun(log: EventLog) -> RunStarted | None:
    """The first record of the log; None for an empty log."""
    async for stored in log.read():
        body = read_event(stored.subject.partition(".")[0], stored).body
        if isinstance(body, RunStarted):
            return body
        raise CliError("this log does not begin with RunStarted: it is no run of envwheel", Exit.difference)
    return None


def check_same(began: Science, wanted: Science) -> None:
    """Science is settled when a run starts. Raises CliError that names the first difference."""
    if difference := first_difference(began, wanted):
        raise CliError(f"this run began with another {difference}; use another --folder for a new run")


def find_base(name: str, work: Path) -> Base:
    """The base that all sandboxes of this run start from; `work` keeps what was found out about it."""
    if name != "host" and not Path(name).is_dir():
        raise CliError(f'no base at {name}: make it with `envwheel base build --to {name}`, or use base = "host"')
    return choose_base(name, work / "base")


def _announce(folder: RunFolder, mesh: Mesh, quiet: bool) -> None:
    if quiet:
        return
    say(f"run {folder.root.name} in {folder.root}")
    say(f"base {mesh.base}, users {mesh.users}, {len(mesh.services)} services, {mesh.server.url}")


async def _follow(mesh: Mesh, run: OpenRun, live: Live, stop: asyncio.Event) -> bool:
    """True when the run finished, False when it was stopped. Raises what makes the mesh unable to go on."""
    done = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_start_and_keep(mesh)),
            group.create_task(_read(run, live, done)),
            group.create_task(_draw(live)),
        ]
        waiting = [asyncio.create_task(event.wait()) for event in (stop, done)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if done.is_set():
                await _until_reported(mesh, stop)
        finally:
            mesh.stopping = True
            for task in [*waiting, *tasks]:
                task.cancel()
    return done.is_set()


async def _start_and_keep(mesh: Mesh) -> None:
    await mesh.start()
    await mesh.keep()


async def _read(run: OpenRun, live: Live, done: asyncio.Event) -> None:
    async for stored in run.log.read(follow=True):
        event = read_event(run.name, stored)
        live.take(event)
        if isinstance(event.body, RunFinished):
            done.set()


async def _draw(live: Live) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        live.show()


async def _until_reported(mesh: Mesh, stop: asyncio.Event) -> None:
    """The observer writes the report last, once it has read RunFinished; an older one says it is open."""
    report = mesh.folder.views / "report.json"
    with suppress(TimeoutError):
        async with asyncio.timeout(REPORT_WAIT_S):
            while not says_finished(report) and not stop.is_set():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(TICK_S)


def says_finished(report: Path) -> bool:
    try:
        return msgspec.json.decode(report.read_bytes(), type=_Finished).finished is not None
    except FileNotFoundError:
        return False


class _Finished(msgspec.Struct):
    """The part of report.json that says whether it is the last one."""

    finished: str | None
