"""One running sandbox in a container."""

import asyncio
from collections.abc import Callable

from services.kernel.sandbox.docker.container import Container
from services.kernel.sandbox.protocol import Image, Limits, Pins, SnapshotId
from services.kernel.sandbox.session import SupervisedSandbox


class DockerSandbox(SupervisedSandbox):
    def __init__(
        self,
        container: Container,
        image: Image,
        pins: Pins,
        env: dict[str, str],
        limits: Limits,
        dispose: Callable[["DockerSandbox"], None],
        save: Callable[["DockerSandbox"], SnapshotId],
    ) -> None:
        super().__init__(image, pins, env, limits, container.channel)
        self.container = container
        self._lock = container.lock
        self._dispose, self._save = dispose, save

    @property
    def disk_bytes_max(self) -> int:
        return self._limits.disk_bytes_max

    def _kill(self) -> None:
        self.container.kill()

    def _disk_bytes(self, bytes_max: int) -> int:
        return self.container.disk_bytes(bytes_max)

    async def snapshot(self) -> SnapshotId:
        """End every process but PID 1, which keeps the tree for later starts until the snapshot is dropped."""
        async with self._conversation():
            await self.container.end_processes()
            self._in_step = True
            self._closing = asyncio.create_task(asyncio.sleep(0))
        return self._save(self)

    async def close(self) -> None:
        """Processes have ended when this returns; the container goes soon, with the backend at the latest."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            if self._lock.locked() or not self._in_step:
                await self.container.remove()
            else:
                async with self._lock:
                    await self.container.end_processes()
        finally:
            self._dispose(self)
