"""What every sandbox backend offers: start from an image, exec, move files, snapshot, close."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Protocol

from services.kernel.archive import FileEntry


@dataclass(frozen=True)
class Image:
    """A read-only file tree that a sandbox starts from."""

    digest: str
    """sha256 over the base digest and the build steps: equal digests are equal trees."""
    lowers: tuple[Path, ...]
    """Layer directories on this machine, base first, topmost last. Empty for an image of a container engine."""
    host_binds: tuple[Path, ...] = ()
    """Host directories shown read-only at the same path (`base = "host"`: /usr). Empty for a built base."""
    workdir: str = "/app"
    env: tuple[tuple[str, str], ...] = ()
    user: str = "root"
    engine_id: str | None = None
    """The image's id in a container engine, where one holds it; the next two fields then say what its files would."""
    passwd: str = ""
    """Text of its /etc/passwd."""
    faketime: str | None = None
    """Where it has libfaketime."""


@dataclass(frozen=True)
class ImageFile:
    """A regular file of an image."""

    path: str
    """Absolute, as the agent would see it; bytes that are no UTF-8 are surrogates."""
    size: int
    open: Callable[[], BinaryIO]
    """Its content, to be read and closed before the next file is asked for."""


@dataclass(frozen=True)
class Pins:
    """What a sandboxed program sees of its surroundings; equal pins give equal answers."""

    hostname: str = "envwheel"
    timezone: str = "UTC"
    locale: str = "C.UTF-8"
    clock_offset_s: int = 0
    """Shift of the visible wall clock. A backend that cannot shift it refuses a value other than 0."""
    user_uid: int = 0


@dataclass(frozen=True)
class Limits:
    """Bounds of one sandbox (memory, pids, disk) and of each exec in it (the rest). All finite and > 0."""

    cpu_s: float = 20.0
    """CPU seconds of the whole process tree of one exec."""
    wall_s: float = 200.0
    """Catches hangs only: ten times `cpu_s` unless said otherwise."""
    memory_bytes_max: int = 512 * 2**20
    pids_max: int = 128
    disk_bytes_max: int = 256 * 2**20
    output_bytes_max: int = 256 * 2**10
    """Kept bytes of merged stdout and stderr; more is cut in the middle, head and tail stay."""


class Ended(StrEnum):
    """Why an exec came to its end."""

    exited = "exited"
    cpu_limit = "cpu_limit"
    wall_limit = "wall_limit"
    disk_limit = "disk_limit"
    memory_limit = "memory_limit"
    pids_limit = "pids_limit"
    """Where the kernel does not refuse the next process itself, the tree is ended instead."""


@dataclass(frozen=True)
class ExecResult:
    exit_code: int
    """As bash reports it: 128 + signal for a killed process."""
    output: bytes
    """stdout and stderr as they came, merged, bytes as bytes."""
    output_bytes: int
    """How many bytes there were before `output_bytes_max` cut them."""
    ended: Ended = Ended.exited
    cpu_s: float = 0.0
    wall_s: float = 0.0
    idle: bool = False
    """True where the tree used next to no CPU before a wall limit: the agent waited for something."""


@dataclass(frozen=True)
class Mount:
    """A host directory or file shown inside; read-only unless said."""

    source: Path
    target: str
    writable: bool = False


class SandboxError(Exception):
    """Infrastructure trouble: the sandbox could not do its part. Never the agent's doing, never a reward."""


class SandboxRefusedError(SandboxError):
    """The request itself is at fault (path leaves the tree, unknown user, archive attack). Trying again changes
    nothing.
    """


class SnapshotId(str):
    """Names a saved writable layer of a backend; valid until the backend closes or `drop` is called."""

    __slots__ = ()


class Sandbox(Protocol):
    """One set of namespaces over one writable layer. Processes started by one exec are seen by the next, until
    close.
    """

    async def exec(
        self,
        command: str | tuple[str, ...],
        *,
        user: str | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        stdin: bytes = b"",
        limits: Limits | None = None,
    ) -> ExecResult:
        """Run `bash -c command` (a str) or an argv (a tuple) to its end. When the command ends or meets a limit every
        process it left in the foreground session is judged: on a limit the whole tree is killed; else background
        processes live on.

        Raises:
            SandboxRefusedError: a user that this sandbox cannot give, or a relative cwd.
            SandboxError: the sandbox is gone.
        """
        ...

    async def put(self, source: Path, target: str) -> None:
        """Copy a host file or folder to an absolute path inside; links out of the tree are never followed, on either
        side.
        """
        ...

    async def get(self, path: str, *, bytes_max: int) -> bytes:
        """Bytes of one regular file inside. A link, a special file or a larger file is refused.

        Raises:
            FileNotFoundError: there is no such file.
            SandboxRefusedError: it is not a plain file within `bytes_max`.
        """
        ...

    async def get_tree(self, path: str, *, files_max: int, bytes_max: int) -> dict[str, FileEntry]:
        """The regular files below a folder, by their path relative to it. Links and special files are left out, and no
        link is followed. `bytes_max` bounds contents and names together.

        Raises:
            FileNotFoundError: there is no such folder.
            SandboxRefusedError: it is no folder, holds more than allowed, or nests more than 100 deep.
        """
        ...

    async def snapshot(self) -> SnapshotId:
        """End every process and save the writable layer; the sandbox is closed afterwards."""
        ...

    async def close(self) -> None:
        """End every process, undo mounts, delete the writable layer. Safe to call twice."""
        ...


@dataclass(frozen=True)
class LimitCheck:
    """One property that `self_check` tried for real on this machine."""

    name: str
    holds: bool
    how: str
    """The mechanism that holds it, or what to do where it does not."""


@dataclass(frozen=True)
class SelfCheck:
    backend: str
    checks: tuple[LimitCheck, ...] = field(default=())

    def missing(self, needed: frozenset[str]) -> tuple[LimitCheck, ...]:
        return tuple(check for check in self.checks if check.name in needed and not check.holds)


class SandboxBackend(Protocol):
    """Makes sandboxes. One backend a process; `close` ends whatever is still open."""

    async def start(
        self,
        image: Image,
        *,
        pins: Pins | None = None,
        limits: Limits | None = None,
        mounts: tuple[Mount, ...] = (),
        snapshot: SnapshotId | None = None,
        trusted_system: bool = False,
    ) -> Sandbox:
        """A fresh sandbox over the image; with `snapshot` its writable layer starts as a copy of the saved one.

        `trusted_system` (for grading) shows /usr, /bin, /sbin, /lib* and the loader's configuration from the image
        alone, whatever the snapshot holds there, and no link of the snapshot that leads to what a verifier reads: see
        `inside.links`.
        """
        ...

    async def drop(self, snapshot: SnapshotId) -> None: ...

    def image_files(self, image: Image) -> Iterator[ImageFile]:
        """Every regular file of an image as the agent would see it; host directories that it shows are left out.
        It blocks: go through it on a thread.

        Raises (while it is gone through):
            SandboxRefusedError: paths of the image too long or closed to be read.
            SandboxError: the image is not there.
        """
        ...

    async def self_check(self) -> SelfCheck: ...

    async def close(self) -> None: ...
