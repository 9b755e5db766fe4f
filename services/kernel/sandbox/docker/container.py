"""One container with our PID 1 in it: how it is described to the engine, and what is said to it before agents are."""

import asyncio
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.kernel.sandbox.channel import Channel
from services.kernel.sandbox.docker.engine import Attached, Engine
from services.kernel.sandbox.docker.options import DockerOptions
from services.kernel.sandbox.docker.runtime import COMMAND, INSIDE
from services.kernel.sandbox.launch import CAPABILITIES, SHARED_MEMORY_BYTES, gid_of
from services.kernel.sandbox.layers import trees_bytes
from services.kernel.sandbox.protocol import Image, Limits, Mount, Pins, SandboxError, SandboxRefusedError
from services.kernel.sandbox.skeleton import FOLDERS_OPEN_TO_ALL
from services.kernel.sandbox.transfer import inside_path

START_TIMEOUT_S = 60.0
SUPERVISOR_BYTES = 128 << 20
"""Memory of a container beyond that of its commands: PID 1, shared memory, what they take between two looks at them."""
LISTING_BYTES_MAX = 64 << 20
PACKED_SLACK_BYTES = 256 << 20
READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/sys/fs/cgroup", "/dev")
"""The engine's own list, and two file systems in memory that it leaves writable."""
FOREIGN_CAPABILITIES = ("CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SYS_PTRACE")
"""For PID 1 alone, to start, end and measure commands of another user, which have no capability at all."""
LOADER_VARIABLES = ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "LD_DEBUG", "GLIBC_TUNABLES")
HOSTS = b"127.0.0.1 localhost %s\n::1 localhost\n"


@dataclass(frozen=True)
class Kind:
    """What a container is started for; equal kinds can stand in for each other."""

    image: str
    """The engine's id."""
    variables: tuple[str, ...]
    """Names that the image sets: PID 1 sees none of them."""
    hostname: str
    uid: int
    gid: int
    memory_bytes: int
    pids: int
    mounts: tuple[tuple[Mount, int], ...]
    """With the inode of each source: a new one of the same name is another."""
    workdir: str


def kind_of(image: Image, pins: Pins, limits: Limits, mounts: tuple[Mount, ...]) -> Kind:
    """Raises SandboxRefusedError for a mount target that is no absolute path, and a source that is not there."""
    if image.engine_id is None:
        raise SandboxRefusedError("this image is no Docker engine's: build it with the builder for Docker")
    for mount in mounts:
        inside_path(mount.target)
    try:
        sources = tuple((mount, mount.source.stat().st_ino) for mount in mounts)
    except OSError as error:
        raise SandboxRefusedError(f"cannot mount: {error}") from error
    return Kind(
        image=image.engine_id,
        variables=tuple(name for name, _ in image.env),
        hostname=pins.hostname,
        uid=pins.user_uid,
        gid=gid_of(image, pins.user_uid),
        memory_bytes=limits.memory_bytes_max,
        pids=limits.pids_max,
        mounts=sources,
        workdir=os.fsdecode(inside_path(image.workdir)),
    )


def specification(kind: Kind, runtime: Path, labels: dict[str, str], options: DockerOptions) -> dict[str, Any]:
    """The body of the engine's create call. No network at all, not even one that is managed and called `none`: that
    halves the time of a start.
    """
    memory_bytes = kind.memory_bytes + SUPERVISOR_BYTES
    foreign = kind.uid != 0
    mounts = [(runtime, INSIDE, True), *((m.source.absolute(), m.target, not m.writable) for m, _ in kind.mounts)]
    return {
        "Image": kind.image,
        "Entrypoint": [],
        "Cmd": [*COMMAND, "0", "1", *((str(kind.uid), str(kind.gid)) if foreign else ("-1", "-1"))],
        "Env": sorted({*kind.variables, *LOADER_VARIABLES}),  # a name without a value takes the variable away
        "User": "0:0",
        "WorkingDir": "/",
        "Hostname": kind.hostname,
        "Labels": labels,
        "NetworkDisabled": True,
        "Healthcheck": {"Test": ["NONE"]},
        **dict.fromkeys(("OpenStdin", "StdinOnce", "AttachStdin", "AttachStdout", "AttachStderr"), True),
        "HostConfig": {
            "NetworkMode": "none",  # for an engine that does not know the word above
            "CapDrop": ["ALL"],
            "CapAdd": [*CAPABILITIES, *(FOREIGN_CAPABILITIES if foreign else ())],
            "SecurityOpt": ["no-new-privileges"],
            "Memory": memory_bytes,
            "MemorySwap": memory_bytes,
            "PidsLimit": kind.pids + 1,
            "ShmSize": SHARED_MEMORY_BYTES,
            "IpcMode": "private",
            "ReadonlyPaths": list(READONLY_PATHS),
            "Mounts": [
                {"Type": "bind", "Source": os.fspath(source), "Target": target, "ReadOnly": closed}
                for source, target, closed in mounts
            ],
            "LogConfig": {"Type": "none", "Config": {}},
            "RestartPolicy": {"Name": "no"},
            **({"Runtime": options.runtime} if options.runtime else {}),
        },
    }


class AttachedChannel(Channel):
    """Frames over the standard streams of a container, which its engine wraps in packets of its own."""

    def __init__(self, attached: Attached) -> None:
        super().__init__(attached.socket)
        self._attached = attached
        self._left = 0
        self.errors = bytearray()
        """What PID 1 wrote on its standard error: only where it fails to start."""

    async def _receive(self, size_max: int) -> bytes:
        while self._left == 0:
            header = b""
            while len(header) < 8:
                header += await super()._receive(8 - len(header))
            size = int.from_bytes(header[4:], "big")
            if header[0] == 1:
                self._left = size
                continue
            while size:
                said = await super()._receive(min(size, 1 << 16))
                size -= len(said)
                self.errors += said[: 4000 - len(self.errors)]
        data = await super()._receive(min(size_max, self._left))
        self._left -= len(data)
        return data

    def close(self) -> None:
        self._attached.close()


class Container:
    """A started container. Whoever has it may speak to it, one at a time (`lock`)."""

    def __init__(self, engine: Engine, container_id: str, attached: Attached, kind: Kind) -> None:
        self.kind, self.channel, self.lock = kind, AttachedChannel(attached), asyncio.Lock()
        self._engine, self._id, self._socket = engine, container_id, attached.socket
        self._upper: Path | None = None
        self._removing: asyncio.Task[None] | None = None

    async def prepare(self) -> None:
        """Wait for PID 1 and let it make what every sandbox has.

        Raises:
            SandboxError: it does not start; the text has its last words.
        """
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                _answer(await self.channel.receive(), b"ready")
                kind = self.kind
                mounts = b"\0".join(inside_path(mount.target).rstrip(b"/") for mount, _ in kind.mounts)
                folders = [f"{mode} /{path}".encode() for path, mode in FOLDERS_OPEN_TO_ALL.items()]
                folders.append(b"0 " + os.fsencode(kind.workdir))
                await self._ask(b"prepare", HOSTS % kind.hostname.encode(), mounts, b"\0".join(folders))
            driver = (await asyncio.to_thread(self._engine.inspect, self._id)).get("GraphDriver") or {}
        except (SandboxError, TimeoutError) as error:
            said = self.channel.errors.decode(errors="replace").strip()
            raise SandboxError(f"the container did not start: {said or error}") from error
        upper = Path((driver.get("Data") or {}).get("UpperDir") or "/nowhere")
        if os.access(upper, os.R_OK | os.X_OK):
            self._upper = upper

    async def _ask(self, *frame: bytes, answer_bytes_max: int = 0) -> list[bytes]:
        await self.channel.send(*frame)
        return _answer(await self.channel.receive(answer_bytes_max))

    async def end_processes(self) -> None:
        """All but PID 1; they are gone when this returns."""
        await self.channel.send(b"end-now")
        await self._ask(b"put-end")

    def alive(self) -> bool:
        """Whether PID 1 still holds its end."""
        try:
            return self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def disk_bytes(self, bytes_max: int) -> int:
        """What it wrote. Root of the engine's machine counts itself; others ask the engine, which counts no entries."""
        mounted = [mount.source for mount, _ in self.kind.mounts if mount.writable]
        if self._upper is not None:
            return trees_bytes([self._upper, *mounted], bytes_max)
        own = self._engine.written_bytes(self._id)
        return own + trees_bytes(mounted, bytes_max - own)

    async def pour_into(
        self, fresh: "Container", patterns: tuple[str, ...], bytes_max: int, listing: bytes | None
    ) -> bytes:
        """Make another, fresh container of the same image look like this one, but for what `patterns` name. No process
        may run in either. A pour that fails or is cancelled halfway ends both. `listing` is what an earlier pour with
        this image and these patterns gave.

        Raises:
            SandboxRefusedError: the tree cannot be made again, or has more than `bytes_max` (and some slack).
        """
        scope = "\0".join(patterns).encode()
        async with self.lock, fresh.lock:
            try:
                if listing is None:
                    (listing,) = await fresh._ask(b"list", scope, answer_bytes_max=LISTING_BYTES_MAX)
                await self.channel.send(b"pack", scope, listing)
                left = bytes_max + PACKED_SLACK_BYTES
                while (frame := await self.channel.receive(1 << 20))[0] == b"restore":
                    left = _take(left, frame)
                    await fresh.channel.send(*frame)
                _answer(frame)
                await fresh._ask(b"restore", b"end")
            except BaseException:
                self.kill()
                fresh.kill()
                raise
            return listing

    def kill(self) -> None:
        """PID 1 goes when its input closes, and the kernel ends the rest with it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    async def remove(self) -> None:
        """End everything and delete what was written. May be called again."""
        if self._removing is None:
            self._removing = asyncio.create_task(self._remove())
        await asyncio.shield(self._removing)

    async def _remove(self) -> None:
        self.kill()
        try:
            await asyncio.to_thread(self._engine.remove, self._id)
        finally:
            self.channel.close()


def launch(engine: Engine, name: str, spec: dict[str, Any], kind: Kind) -> Container:
    """A started container, not prepared yet. Blocks. Raises SandboxError, and leaves nothing then."""
    try:
        container_id = engine.create(name, spec)
    except SandboxError as error:
        if "bind source path does not exist" in str(error):
            raise SandboxError(
                f"{error}. The Docker engine at {engine.host} must see this process's files at the same paths: run it "
                "on this machine, and give a service in a container its work folder at the path that the machine has"
            ) from error
        raise
    attached = None
    try:
        attached = engine.attach(container_id)
        engine.start(container_id)
        return Container(engine, container_id, attached, kind)
    except BaseException:
        if attached is not None:
            attached.close()
        engine.remove(container_id)
        raise


def _take(left: int, frame: list[bytes]) -> int:
    left -= sum(map(len, frame))
    if left < 0:
        raise SandboxRefusedError("the snapshot holds more than a start may be filled with")
    return left


def _answer(parts: list[bytes], wanted: bytes = b"ok") -> list[bytes]:
    kind, *rest = parts
    if kind == wanted:
        return rest
    text = b"".join(rest[:1]).decode(errors="replace")
    raise (SandboxRefusedError if kind == b"refused" else SandboxError)(f"the supervisor says {kind!r}: {text}")
