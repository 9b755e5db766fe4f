"""One running sandbox as the host sees it: what is said to its PID 1, and how its disk is watched. Backends add how
it starts and ends.
"""

import asyncio
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from services.kernel.archive import FileEntry
from services.kernel.meter import spend
from services.kernel.sandbox.channel import Channel
from services.kernel.sandbox.launch import uid_of
from services.kernel.sandbox.protocol import (
    Ended,
    ExecResult,
    Image,
    Limits,
    Pins,
    SandboxError,
    SandboxRefusedError,
)
from services.kernel.sandbox.transfer import Frame, inside_path, put_frames

ANSWER_GRACE_S = 30.0
"""How long after a wall limit the supervisor may be silent before the sandbox is given up."""
END_TIMEOUT_S = 10.0
DISK_LOOK_S = 0.15
DISK_LOOK_SHARE = 0.2
"""Watching the disk takes at most this share of one thread's time."""
ARGUMENT_BYTES_MAX = 120_000
"""Longer scripts than one argument of execve may be (128 KiB) go through a pipe."""
BOUNDS = ("cpu_s", "wall_s", "memory_bytes_max", "pids_max", "disk_bytes_max", "output_bytes_max")
"""In the order in which `inside.usage.Bounds` reads them."""
TREE_ENTRY_BYTES = 32
"""What a file of a tree takes in a frame beside its name and content: three lengths and its mode."""
IDLE_CPU_S, IDLE_SHARE = 0.05, 0.005


def check_limits(limits: Limits) -> Limits:
    """Raises SandboxRefusedError unless every limit is finite and > 0."""
    for name in Limits.__dataclass_fields__:
        value = getattr(limits, name)
        if not (math.isfinite(value) and value > 0):
            raise SandboxRefusedError(f"limit {name} = {value} must be finite and > 0")
    return limits


class SupervisedSandbox(ABC):
    """A `Sandbox` but for its start and end. Calls that meet wait for each other: one runs at a time."""

    def __init__(self, image: Image, pins: Pins, env: dict[str, str], limits: Limits, channel: Channel) -> None:
        self._image, self._pins, self._env, self._limits, self._channel = image, pins, env, limits, channel
        self._lock = asyncio.Lock()
        self._in_step = True
        self._closing: asyncio.Task[None] | None = None

    @abstractmethod
    def _kill(self) -> None:
        """End everything inside, without waiting for it."""

    @abstractmethod
    def _disk_bytes(self, bytes_max: int) -> int:
        """What the writable layer takes, counted no further than past `bytes_max`. Blocks."""

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
        limits = check_limits(limits) if limits else self._limits
        if user is not None and (uid := uid_of(self._image, user)) != self._pins.user_uid:
            raise SandboxRefusedError(
                f"this sandbox has one user, uid {self._pins.user_uid}; {user!r} needs one with user_uid = {uid}"
            )
        frame = _exec_frame(command, inside_path(cwd or self._image.workdir), self._env | (env or {}), stdin, limits)
        async with self._conversation():
            await self._channel.send(*frame)
            answer = asyncio.ensure_future(self._channel.receive(limits.output_bytes_max))
            try:
                parts = await self._watch(answer, limits)
            except asyncio.CancelledError:
                await self._channel.send(b"end", b"cancelled")
                await asyncio.wait({answer}, timeout=END_TIMEOUT_S)
                raise
            finally:
                self._in_step = answer.done() and not answer.cancelled() and answer.exception() is None
                answer.cancel()
            if parts[0] == Ended.disk_limit.value.encode():
                await self._channel.send(b"end-now")
        return _exec_result(parts, limits)

    @asynccontextmanager
    async def _conversation(self) -> AsyncIterator[None]:
        """One request and its answer. Left halfway (cancelled, no answer), nothing can follow on the socket: the
        sandbox ends.
        """
        async with self._lock:
            if not self._in_step or self._closing is not None:
                raise SandboxError("the sandbox is closed or has failed before")
            self._in_step = False
            try:
                yield
            finally:
                if not self._in_step:
                    self._kill()

    async def _watch(self, answer: asyncio.Future[list[bytes]], limits: Limits) -> list[bytes]:
        """The answer of an exec; ends it early when it fills the disk. PID 1 sees the merged tree, only the host the
        layer.
        """
        until = time.monotonic() + limits.wall_s + ANSWER_GRACE_S
        pause_s, told = DISK_LOOK_S, False
        while True:
            await asyncio.wait({answer}, timeout=pause_s)
            ended = answer.done()
            looked = time.monotonic()
            full = await asyncio.to_thread(self._disk_bytes, limits.disk_bytes_max) > limits.disk_bytes_max
            if ended:
                parts = answer.result()
                if full and parts[0] == b"exited":
                    parts[0] = b"disk_limit"
                return parts
            if full and not told:
                await self._channel.send(b"end", b"disk_limit")
                told = True
            if time.monotonic() > until:
                raise SandboxError("the supervisor of the sandbox does not answer")
            pause_s = max(DISK_LOOK_S, (time.monotonic() - looked) / DISK_LOOK_SHARE)

    async def put(self, source: Path, target: str) -> None:
        frames = put_frames(source, target)
        fault: SandboxRefusedError | None = None
        async with self._conversation():
            try:
                for frame in frames:
                    await self._channel.send(*frame)
            except SandboxRefusedError as error:
                fault = error
            await self._channel.send(b"put-end")
            parts = await self._channel.receive()
            self._in_step = True
        if fault:
            raise fault
        _check_answer(parts, target)

    async def get(self, path: str, *, bytes_max: int) -> bytes:
        frame = (b"get", inside_path(path), str(bytes_max).encode())
        async with self._conversation():
            await self._channel.send(*frame)
            parts = await self._channel.receive(bytes_max)
            self._in_step = True
        _check_answer(parts, path)
        return b"".join(parts[1:])

    async def get_tree(self, path: str, *, files_max: int, bytes_max: int) -> dict[str, FileEntry]:
        frame = (b"get-tree", inside_path(path), str(files_max).encode(), str(bytes_max).encode())
        async with self._conversation():
            await self._channel.send(*frame)
            parts = await self._channel.receive(bytes_max + TREE_ENTRY_BYTES * files_max)
            self._in_step = True
        _check_answer(parts, path)
        return _tree(parts[1:], files_max)


def _exec_frame(command: str | tuple[str, ...], cwd: bytes, env: dict[str, str], stdin: bytes, limits: Limits) -> Frame:
    script = b""
    try:
        argv = [os.fsencode(word) for word in (("bash", "-c", command) if isinstance(command, str) else command)]
        variables = [os.fsencode(f"{name}={value}") for name, value in env.items() if _sane_name(name)]
    except UnicodeEncodeError as error:
        raise SandboxRefusedError(f"the command or a variable cannot be encoded: {error}") from error
    if not argv or any(b"\0" in word for word in (*argv, *variables)):
        raise SandboxRefusedError("the command is empty, or it or a variable has a NUL character")
    if isinstance(command, str) and len(argv[2]) > ARGUMENT_BYTES_MAX:
        script, argv[2] = argv[2], b". /dev/fd/9"
    bounds = " ".join(str(getattr(limits, name)) for name in BOUNDS)
    return (b"exec", bounds.encode(), cwd, stdin, script, str(len(variables)).encode(), *variables, *argv)


def _sane_name(name: str) -> bool:
    if not name or "=" in name:
        raise SandboxRefusedError(f"{name!r} is no name of a variable")
    return True


def _exec_result(parts: list[bytes], limits: Limits) -> ExecResult:
    try:
        why, code, cpu_s, wall_s, total, output = parts
        ended = Ended(why.decode())
        result = ExecResult(int(code), output, int(total), ended, float(cpu_s), float(wall_s))
    except ValueError as error:
        raise SandboxError(f"the supervisor's answer makes no sense: {error}") from error
    spend(result.cpu_s)
    if ended is Ended.wall_limit and result.cpu_s <= IDLE_CPU_S + IDLE_SHARE * limits.wall_s:
        return replace(result, idle=True)
    return result


def _check_answer(parts: list[bytes], path: str) -> None:
    kind, text = parts[0], b"".join(parts[1:2])
    if kind == b"missing":
        raise FileNotFoundError(f"{path}: {text.decode(errors='replace')}")
    if kind == b"refused":
        raise SandboxRefusedError(f"{path}: {text.decode(errors='replace')}")
    if kind != b"ok":
        raise SandboxError(f"the supervisor answered {kind[:20]!r}")


def _tree(parts: list[bytes], files_max: int) -> dict[str, FileEntry]:
    """Names are checked again: an image may have a python3 of its own."""
    if len(parts) % 3 or len(parts) > 3 * files_max:
        raise SandboxError(f"the supervisor's answer makes no sense: {len(parts)} parts for {files_max} files at most")
    entries = {}
    for name, mode, content in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        path = os.fsdecode(name)
        if not mode.isdigit() or any(part in ("", ".", "..") for part in path.split("/")):
            raise SandboxError(f"the supervisor's answer makes no sense: a file {path[:100]!r} of mode {mode[:20]!r}")
        entries[path] = FileEntry(content, executable=bool(int(mode) & 0o100))
    return entries
