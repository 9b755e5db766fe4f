"""The supervisor of one machine: nats-server and the services as child processes, restarted when one dies."""

import asyncio
import os
import shutil
import signal
import sys
import time
from asyncio.subprocess import Process
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from services.cli.folder import Child, RunFolder, State
from services.cli.outcome import CliError, Exit
from services.cli.users import GID, ROLES, Users, clean_environment
from services.kernel.models.chat.endpoints import key_variables
from services.kernel.nats_server import NatsServer
from services.kernel.runfile import RunFile

TERM_S = 4.0
"""From SIGTERM to SIGKILL of a service; with the server's end it stays within 5 s."""
SERVER_END_S = 0.7
QUICK_DEATH_S = 5.0
QUICK_DEATHS_MAX = 8
"""So many deaths in a row, each soon after the start: restarting does not help."""
BACKOFF_S = (0.1, 5.0)
ASKING = ("proposer", "validator")
"""Roles that may ask models behind endpoints."""
_FOR_GOOD = (Exit.difference, Exit.usage)
"""Exit codes of a service that found something which a restart does not mend."""


@dataclass
class Service:
    """One child and its history."""

    role: str
    number: int
    folder: Path
    uid: int | None
    command: list[str]
    process: Process | None = None
    starts: int = 0
    quick_deaths: int = 0
    last_error: str = ""

    @property
    def name(self) -> str:
        return f"{self.role}-{self.number}"

    def temporary(self, *, make: bool) -> None:
        """Its folder for temporary files is gone when it does not run, however it ended."""
        folder = self.folder / "tmp"
        shutil.rmtree(folder, ignore_errors=True)
        if make:
            folder.mkdir(mode=0o700)
            if self.uid is not None:
                os.chown(folder, self.uid, GID)

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.returncode is None else None


@dataclass
class Mesh:
    """Make it with `build`, then `start`, `keep`, `end`. All from the main thread: the children end with it."""

    folder: RunFolder
    server: NatsServer
    users: Users
    base: str
    services: list[Service] = field(default_factory=list)
    stopping: bool = False
    server_starts: int = 1
    started_ns: int = field(default_factory=time.time_ns)

    async def start(self) -> None:
        for service in self.services:
            await self._spawn(service)

    async def keep(self) -> None:
        """Restarts what dies, until it is cancelled. Raises CliError when a child ends for good."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_server())
            for service in self.services:
                group.create_task(self._keep(service))

    async def end(self) -> None:
        """SIGTERM to all services, SIGKILL to what is left after `TERM_S`. The server stays, for readers."""
        self.stopping = True
        alive = [service for service in self.services if service.pid is not None]
        for service in alive:
            # To it alone: its sandboxes would end under work that it may still finish, and count as failed tries.
            if (pid := service.pid) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        waiting = [asyncio.create_task(service.process.wait()) for service in alive if service.process]
        if waiting:
            await asyncio.wait(waiting, timeout=TERM_S)
        for service in self.services:
            # The group too: a child that the service left behind goes with it.
            _signal(service, signal.SIGKILL)
            service.temporary(make=False)
        await asyncio.gather(*waiting)
        self.tell()

    def end_server(self) -> None:
        self.server.stop(timeout_s=SERVER_END_S)

    def tell(self) -> None:
        children = {
            service.name: Child(pid=service.pid, starts=service.starts, uid=service.uid, last_error=service.last_error)
            for service in self.services
        }
        children["nats-server"] = Child(pid=self.server.pid, starts=self.server_starts)
        self.folder.tell(
            State(
                pid=os.getpid(),
                url=self.server.url,
                started_ns=self.started_ns,
                users=str(self.users),
                base=self.base,
                children=children,
            )
        )

    async def _spawn(self, service: Service) -> None:
        service.temporary(make=True)
        with (service.folder.parent / f"{service.name}.log").open("ab") as log:
            service.process = await asyncio.create_subprocess_exec(
                *service.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=clean_environment() | self.keys(service.role) | {"TMPDIR": str(service.folder / "tmp")},
                cwd="/",
                start_new_session=True,
            )
        service.starts += 1
        self.tell()

    def keys(self, role: str) -> dict[str, str]:
        """Keys of endpoints that stand in variables of ours: for those services alone that ask models."""
        names = key_variables(self.folder.endpoints) if role in ASKING else ()
        return {name: os.environ[name] for name in names if name in os.environ}

    async def _keep(self, service: Service) -> None:
        while service.process is not None:
            began = time.monotonic()
            code = await service.process.wait()
            if self.stopping:
                return
            service.last_error = last_line(service)
            _signal(service, signal.SIGKILL)
            if code in _FOR_GOOD:
                raise CliError(f"{service.name} stopped for good: {service.last_error}", Exit.difference)
            service.quick_deaths = service.quick_deaths + 1 if time.monotonic() - began < QUICK_DEATH_S else 0
            if service.quick_deaths > QUICK_DEATHS_MAX:
                log = service.folder.parent / f"{service.name}.log"
                raise CliError(f"{service.name} keeps dying: {service.last_error} (see {log})", Exit.infrastructure)
            low, high = BACKOFF_S
            await asyncio.sleep(min(low * 2**service.quick_deaths, high))
            await self._spawn(service)

    async def _keep_server(self) -> None:
        quick_deaths = 0
        began = time.monotonic()
        while True:
            await asyncio.sleep(0.1)
            if self.server.pid is not None:
                continue
            quick_deaths = quick_deaths + 1 if time.monotonic() - began < QUICK_DEATH_S else 0
            if quick_deaths > QUICK_DEATHS_MAX:
                log = self.folder.nats / "nats.log"
                raise CliError(f"nats-server keeps dying: see {log}; is the disk full?", Exit.infrastructure)
            began = time.monotonic()
            self.server.start()
            self.server_starts += 1
            self.tell()


def build(folder: RunFolder, file: RunFile, server: NatsServer, users: Users, base: str) -> Mesh:
    """The mesh that the settings ask for; makes the services' own folders."""
    mesh = Mesh(folder, server, users, base)
    wide = file.deployment
    replicas = {
        "proposer": (wide.proposers, wide.proposer_slots),
        "validator": (wide.validators, wide.validator_slots),
        "solver": (wide.solvers, wide.solver_slots),
        "trainer": (wide.trainers, 1),
        "observer": (1, 1),
    }
    for role in ROLES:
        count, slots = replicas[role]
        for number in range(count):
            own, uid = folder.services / f"{role}-{number}", users.uid_of(role, number)
            own.mkdir(exist_ok=True)
            if uid is not None:
                os.chown(own, uid, GID)
            own.chmod(0o700)
            options = {
                "run": wide.name,
                "nats-url": server.url,
                "artifacts": folder.artifacts,
                "work": own,
                "endpoints": folder.endpoints,
                "base": wide.base,
                "sandbox": wide.sandbox,
                "docker-host": wide.docker_host,
                "docker-runtime": wide.docker_runtime,
                "docker-build-network": wide.docker_build_network,
                "docker-pull": wide.docker_pull,
                "replica": number,
                "slots": slots,
                "in-flight-max": wide.in_flight_max,
                "ack-wait-s": wide.ack_wait_s,
                "drain-s": wide.drain_s,
            }
            flags = [f"--{name}={value}" for name, value in options.items()]
            program = [sys.executable, "-m", "services.cli", "run", role, *flags]
            command = users.command(own, uid, [folder.root, *base_folder(wide.base)], program)
            mesh.services.append(Service(role, number, own, uid, command))
    return mesh


def base_folder(base: str) -> list[Path]:
    return [] if base == "host" else [Path(base).absolute()]


def last_line(service: Service) -> str:
    """What the service said last: its error, where it had one."""
    log = service.folder.parent / f"{service.name}.log"
    with suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        lines = deque((line for line in file.read().decode(errors="replace").splitlines() if line.strip()), maxlen=1)
        return lines[-1] if lines else "it said nothing"
    return "it said nothing"


def _signal(service: Service, number: signal.Signals) -> None:
    if service.process is not None:
        # Its session has its pid, and may outlive it.
        with suppress(ProcessLookupError):
            os.killpg(service.process.pid, number)
