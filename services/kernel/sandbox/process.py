"""One running bubblewrap sandbox: a process of this host, and a folder with its writable layer."""

import asyncio
import os
import socket
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from services.kernel.sandbox.channel import Channel
from services.kernel.sandbox.launch import Plan
from services.kernel.sandbox.layers import remove_tree, trees_bytes
from services.kernel.sandbox.protocol import Limits, SandboxError, SnapshotId
from services.kernel.sandbox.session import END_TIMEOUT_S, SupervisedSandbox

START_TIMEOUT_S = 60.0


class BubblewrapSandbox(SupervisedSandbox):
    def __init__(
        self,
        plan: Plan,
        limits: Limits,
        process: subprocess.Popen[bytes],
        sock: socket.socket,
        folder: Path,
        forget: Callable[["BubblewrapSandbox"], None],
        save: Callable[["BubblewrapSandbox"], Awaitable[SnapshotId]],
    ) -> None:
        super().__init__(plan.image, plan.pins, plan.env, limits, Channel(sock))
        self.plan, self.folder = plan, folder
        self._process, self._sock = process, sock
        self._forget, self._save = forget, save
        self._ending: asyncio.Task[None] | None = None

    async def wait_ready(self, errors_fd: int) -> None:
        """Raises SandboxError with bubblewrap's own words when PID 1 does not answer."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                parts = await self._channel.receive()
        except (SandboxError, TimeoutError) as error:
            said = os.pread(errors_fd, 4000, 0).decode(errors="replace").strip()
            raise SandboxError(
                f"bubblewrap did not start: {said or error}. It needs user namespaces, overlayfs in them, "
                f"a work folder that is not on an overlayfs itself ({self.folder}), and /usr/bin/python3 in the image"
            ) from error
        if parts != [b"ready"]:
            raise SandboxError("the supervisor did not say that it is ready")

    def _kill(self) -> None:
        self._process.kill()

    def _disk_bytes(self, bytes_max: int) -> int:
        written = [self.plan.upper, *(mount.source for mount in self.plan.mounts if mount.writable)]
        return trees_bytes(written, bytes_max)

    async def snapshot(self) -> SnapshotId:
        if self._closing is not None:
            raise SandboxError("the sandbox is closed")
        self._closing = asyncio.create_task(self.end())  # closed from here on, and the writable layer stays
        await asyncio.shield(self._closing)
        return await self._save(self)

    async def end(self) -> None:
        """End every process; the writable layer stays. PID 1 goes when its socket closes, and the kernel ends the rest
        with it.
        """
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        if not await _exited(self._process):
            self._process.kill()
            if not await _exited(self._process):
                raise SandboxError(f"bubblewrap process {self._process.pid} does not end")
        self._process.wait()
        self._channel.close()

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self.end()
        await asyncio.to_thread(remove_tree, self.folder)
        self._forget(self)


async def _exited(process: subprocess.Popen[bytes]) -> bool:
    """Wait for the process to end, at most END_TIMEOUT_S; it is not collected."""
    if process.returncode is not None:
        return True
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    pidfd = os.pidfd_open(process.pid)
    loop.add_reader(pidfd, ended.set)
    try:
        async with asyncio.timeout(END_TIMEOUT_S):
            await ended.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
    return True
