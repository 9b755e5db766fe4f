"""Sandbox backends by name, for suites that every backend must pass."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from services.kernel.sandbox.base import host_base, load_base
from services.kernel.sandbox.bubblewrap import BubblewrapBackend
from services.kernel.sandbox.docker.backend import DockerBackend
from services.kernel.sandbox.docker.options import DockerOptions
from services.kernel.sandbox.protocol import ExecResult, Image, Limits, Mount, Pins, Sandbox, SandboxBackend, SnapshotId
from tests.support.engine import base_image, engine_host

BACKENDS = ("bubblewrap", "docker")
SMALL = Limits(cpu_s=10.0, wall_s=20.0, memory_bytes_max=128 << 20, pids_max=64, disk_bytes_max=16 << 20)


class Rig:
    """A backend with an image, and short ways to use them. What is started here is closed with `close`."""

    def __init__(self, backend: SandboxBackend, image: Image, folder: Path) -> None:
        self.backend, self.image, self.folder = backend, image, folder
        self._started: list[Sandbox] = []

    async def start(
        self,
        *,
        pins: Pins | None = None,
        limits: Limits = SMALL,
        mounts: tuple[Mount, ...] = (),
        snapshot: SnapshotId | None = None,
        trusted_system: bool = False,
        workdir: str = "/app",
    ) -> Sandbox:
        sandbox = await self.backend.start(
            replace(self.image, workdir=workdir),
            pins=pins,
            limits=limits,
            mounts=mounts,
            snapshot=snapshot,
            trusted_system=trusted_system,
        )
        self._started.append(sandbox)
        return sandbox

    async def close(self) -> None:
        """All that was started; the backend goes on."""
        while self._started:
            await self._started.pop().close()

    async def run(self, command: str | tuple[str, ...], *, limits: Limits = SMALL) -> ExecResult:
        """The result of one command in a fresh sandbox."""
        sandbox = await self.start(limits=limits)
        try:
            return await sandbox.exec(command)
        finally:
            await sandbox.close()


@lru_cache
def _image(base: Path) -> Image:
    """ENVWHEEL_TEST_BASE names a built base to run the suites on; else it is the host's own."""
    built = os.environ.get("ENVWHEEL_TEST_BASE")
    return (load_base(Path(built)) if built else host_base(base)).image()


@asynccontextmanager
async def open_rig(backend_name: str, folder: Path, base: Path) -> AsyncIterator[Rig]:
    """`base` may be shared by rigs: it is written once. Several tests may share one: each closes what it started."""
    if backend_name == "docker":
        host = engine_host()
        image = await asyncio.to_thread(base_image, host, base)
        async with DockerBackend(folder / "sandboxes", DockerOptions(host=host, warm_max=2)) as docker:
            yield Rig(docker, image, folder)
        return
    image = await asyncio.to_thread(_image, base)
    async with BubblewrapBackend(folder / "sandboxes") as backend:
        yield Rig(backend, image, folder)
