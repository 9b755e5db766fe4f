"""A run folder: `run.toml`, `nats/`, `artifacts/`, `services/<role>-<n>/`, `run.json`, a lock held while it runs."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from schemas.subjects import check_run
from services.cli.outcome import CliError, Exit
from services.cli.profiles import profile_text
from services.kernel.models.chat.endpoints import FILE_NAME
from services.kernel.runfile import RunFile, read_runfile, write_runfile

RUNS = Path("runs")


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the mesh as the supervisor last saw it."""

    pid: int | None
    starts: int = 1
    uid: int | None = None
    last_error: str = ""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """`run.json`: what a running mesh says about itself."""

    pid: int
    url: str
    started_ns: int
    users: str
    """`separate`, or `same: <why>`."""
    base: str
    """Kind and digest of the sandboxes' base."""
    children: dict[str, Child]


Purpose = Literal["start", "read"]


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """What the lock file says of the process that holds it: it runs the mesh, or it reads a run that is at rest."""

    pid: int
    purpose: Purpose


class RunFolder:
    """Paths of one run. Nothing is made before `create`."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.toml = self.root / "run.toml"
        self.nats = self.root / "nats"
        self.artifacts = self.root / "artifacts"
        self.services = self.root / "services"
        self.views = self.services / "observer-0"
        self.endpoints = self.root / FILE_NAME
        self._state = self.root / "run.json"
        self._lock = self.root / "lock"

    def exists(self) -> bool:
        return self.toml.is_file() and self.nats.is_dir()

    def create(self, file: RunFile) -> None:
        """Raises CliError where something else lies there already."""
        check_run(file.deployment.name)
        if "\\" in str(self.root):
            raise CliError(f"{self.root}: the tables cannot lie below a name with a backslash; choose another --folder")
        if self.root.is_dir() and any(path.name != "lock" for path in self.root.iterdir()):
            raise CliError(f"{self.root} is not empty and holds no run: choose another --folder")
        for folder in (self.root, self.nats, self.services):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)
        # The store is the log: no service may read or change it but through the server.
        self.nats.chmod(0o700)
        self.save(file)

    def save(self, file: RunFile) -> None:
        write_whole(self.toml, write_runfile(file).encode())

    def file(self) -> RunFile:
        """The effective settings. Raises RunFileError."""
        return read_runfile(self.toml.read_text(), where=str(self.toml), profile=profile_text)

    def state(self) -> State | None:
        """What the mesh said last; None before its first start."""
        try:
            return msgspec.json.decode(self._state.read_bytes(), type=State)
        except FileNotFoundError:
            return None

    def tell(self, state: State) -> None:
        write_whole(self._state, msgspec.json.format(msgspec.json.encode(state)))

    def is_running(self) -> bool:
        """Does a supervisor hold this folder?"""
        holder = self.holder()
        return holder is not None and holder.purpose == "start"

    def holder(self) -> Holder | None:
        """Who has sole use of the folder now. Raises CliError where that process does not say it."""
        for _ in range(20):
            with suppress(FileNotFoundError), self._lock.open("rb") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    with suppress(msgspec.DecodeError):  # it has only just taken it
                        return msgspec.json.decode(lock.read(), type=Holder)
                    time.sleep(0.01)
                    continue
            return None
        raise CliError(f"{self._lock} is held by a process that says nothing about itself", Exit.infrastructure)

    @contextmanager
    def held(self, wanted_for: Purpose) -> Iterator[None]:
        """Sole use of the folder. Raises CliError where somebody else has it."""
        self.root.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CliError(self._in_use(wanted_for), Exit.infrastructure) from None
            # Of one size, so that no reader sees a part of the last holder's line.
            os.pwrite(handle, msgspec.json.encode(Holder(pid=os.getpid(), purpose=wanted_for)).ljust(64), 0)
            yield
        finally:
            os.close(handle)

    def _in_use(self, wanted_for: Purpose) -> str:
        holder = self.holder()
        if holder is None or holder.purpose == "read":
            who = f"process {holder.pid}" if holder else "another process"
            return f"{who} reads {self.root}, so it is not free to {wanted_for}: try again when that has ended"
        return (
            f"{self.root} is in use (process {holder.pid}), so it is not free to {wanted_for}: "
            f"see `envwheel status {self.root}`, or end it with `envwheel stop {self.root}`"
        )


def find_run(name: str | None) -> RunFolder:
    """The run folder that a command was given, by path or name; without one the run used last."""
    if name is None:
        return _latest()
    # An absolute path stays itself below RUNS.
    places = list(dict.fromkeys((Path(name), RUNS / name)))
    for root in places:
        if RunFolder(root).exists():
            return RunFolder(root)
    raise CliError(f"no run {name!r}: no run.toml and nats/ in {' or '.join(map(str, places))}")


def _latest() -> RunFolder:
    here = RunFolder(Path())
    if here.exists():
        return here
    found = [RunFolder(path) for path in RUNS.iterdir()] if RUNS.is_dir() else []
    found = [folder for folder in found if folder.exists()]
    if not found:
        raise CliError("no run here: start one with `envwheel demo` or `envwheel up -c run.toml`, or name its folder")
    return max(found, key=lambda folder: (folder.is_running(), folder.toml.stat().st_mtime_ns))


def write_whole(path: Path, data: bytes) -> None:
    """Readers see the old file or the new one, never a part."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(data)
    beside.chmod(0o644)
    beside.replace(path)
