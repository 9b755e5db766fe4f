"""Real sandboxes, images and graders for tests, on the host's own base."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from services.kernel.archive import FileEntry
from services.kernel.harbor.build import LayerBuilder
from services.kernel.harbor.docker_builder import DockerBuilder
from services.kernel.harbor.grade import EnvironmentBroken, Grade, Grader
from services.kernel.harbor.recipe import BASE_NAMES, ImageBuilder
from services.kernel.harbor.task import HarborTask, read_task
from services.kernel.sandbox.base import host_base
from services.kernel.sandbox.bubblewrap import BubblewrapBackend
from services.kernel.sandbox.docker.backend import DockerBackend
from services.kernel.sandbox.docker.options import DockerOptions
from services.kernel.sandbox.protocol import ExecResult, Image, Sandbox, SandboxBackend
from tests.support.engine import engine_host


@dataclass
class Lab:
    backend: SandboxBackend
    builder: ImageBuilder
    grader: Grader

    async def task(self, files: dict[str, FileEntry]) -> tuple[HarborTask, Image]:
        """A well-formed task and its image."""
        reading = read_task(files)
        assert reading.task is not None, reading.problems
        return reading.task, await self.builder.build(reading.task)

    async def start(self, task: HarborTask, image: Image) -> Sandbox:
        return await self.backend.start(image, limits=replace(task.agent_limits, wall_s=20.0))

    async def attempt(self, files: dict[str, FileEntry], *commands: str) -> Grade | EnvironmentBroken:
        """The grade after an agent has run `commands`."""
        task, image = await self.task(files)
        sandbox = await self.start(task, image)
        for command in commands:
            await sandbox.exec(command)
        snapshot = await sandbox.snapshot()
        try:
            return await self.grader.grade(task, image, snapshot)
        finally:
            await self.backend.drop(snapshot)

    async def look(self, files: dict[str, FileEntry], command: str) -> ExecResult:
        """What one command says in a fresh sandbox of the task."""
        task, image = await self.task(files)
        sandbox = await self.start(task, image)
        try:
            return await sandbox.exec(command)
        finally:
            await sandbox.close()


@asynccontextmanager
async def open_lab(folder: Path, base: Path, backend_name: str = "bubblewrap") -> AsyncIterator[Lab]:
    """A lab below `folder`; the base root is kept in `base`, which labs may share. With "docker" the base is the
    engine's; without an engine the test is skipped.
    """
    if backend_name == "docker":
        async with DockerBackend(folder / "sandboxes", DockerOptions(host=engine_host(), warm_max=0)) as engine:
            images = DockerBuilder(engine, None, BASE_NAMES)
            yield Lab(engine, images, Grader(engine, images, folder / "grading"))
            await images.close()
        return
    image = host_base(base).image()
    async with BubblewrapBackend(folder / "sandboxes") as backend:
        builder = LayerBuilder(backend, folder / "layers", image)
        yield Lab(backend, builder, Grader(backend, builder, folder / "grading"))
