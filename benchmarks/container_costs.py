"""Wall time to start a sandbox, to run a command in it, and to be rid of it: ours beside the `docker` command."""

import asyncio
import os
import shutil
import subprocess
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import msgspec

from benchmarks.figures import Spread, spread
from services.kernel.sandbox.base import host_base
from services.kernel.sandbox.bubblewrap import BubblewrapBackend
from services.kernel.sandbox.docker.backend import DockerBackend
from services.kernel.sandbox.docker.options import DockerOptions
from services.kernel.sandbox.protocol import Image, SandboxBackend

COMMAND = ("bash", "-c", "echo hello")
ROUNDS = 20
ROUNDS_DOCKER = 8
EXECS = 5
WARMING_S = 2.0
"""Between sandboxes, so that the next spare container is up."""


class Cost(msgspec.Struct, frozen=True):
    what: str
    wall_ms: Spread


class Stopwatch:
    """Milliseconds by step."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = defaultdict(list)
        self._since_s = time.perf_counter()

    def start(self) -> None:
        self._since_s = time.perf_counter()

    def take(self, what: str) -> None:
        now_s = time.perf_counter()
        self.taken[what].append(1000 * (now_s - self._since_s))
        self._since_s = time.perf_counter()

    def costs(self) -> list[Cost]:
        return [Cost(what, spread(values)) for what, values in self.taken.items()]


async def bubblewrap_costs(folder: Path, *, rounds: int = ROUNDS) -> list[Cost]:
    image = replace((await asyncio.to_thread(host_base, folder / "base")).image(), workdir="/")
    async with BubblewrapBackend(folder / "sandboxes") as backend:
        return await _sandbox_costs("bubblewrap", backend, image, rounds)


async def _sandbox_costs(
    name: str, backend: SandboxBackend, image: Image, rounds: int, *, pause_s: float = 0.0
) -> list[Cost]:
    await (await backend.start(image)).close()
    watch = Stopwatch()
    for _ in range(rounds):
        await asyncio.sleep(pause_s)
        watch.start()
        sandbox = await backend.start(image)
        watch.take(f"{name}: start")
        for _ in range(EXECS):
            result = await sandbox.exec(COMMAND)
            watch.take(f"{name}: exec")
            assert result.output == b"hello\n"
            watch.start()
        await sandbox.close()
        watch.take(f"{name}: close")
    return watch.costs()


async def docker_backend_costs(folder: Path, host: str, image_name: str) -> list[Cost]:
    """Our Docker backend, without spare containers and with one waiting."""
    costs: list[Cost] = []
    for label, warm_max, pause_s in (
        ("Docker backend", 0, 0.0),
        ("Docker backend, a warm container waits", 1, WARMING_S),
    ):
        options = DockerOptions(host=host, warm_max=warm_max)
        async with DockerBackend(folder / str(warm_max), options) as backend:
            image = await backend.image_of(image_name)
            costs += await _sandbox_costs(label, backend, image, ROUNDS_DOCKER, pause_s=pause_s)
    return costs


def docker_command_costs(host: str, image: str) -> list[Cost]:
    """`docker run`, `docker exec` and `docker rm` as a shell user has them. Raises CalledProcessError."""
    docker = shutil.which("docker")
    if docker is None:
        raise FileNotFoundError("no `docker` command: install the package docker.io")

    def call(*arguments: str) -> str:
        argv = [docker, "-H", host, *arguments]
        return subprocess.run(argv, capture_output=True, check=True, text=True).stdout.strip()

    call("run", "--rm", "--network", "none", image, "true")
    watch, name = Stopwatch(), f"envwheel-benchmark-{os.getpid()}"
    for _ in range(ROUNDS_DOCKER):
        watch.start()
        call("run", "--rm", "--network", "none", image, *COMMAND)
        watch.take("`docker run --rm` of one command")
        try:
            call("run", "-d", "--name", name, "--network", "none", image, "sleep", "infinity")
            watch.take("`docker run -d`")
            for _ in range(EXECS):
                call("exec", name, *COMMAND)
                watch.take("`docker exec`")
        finally:
            watch.start()
            call("rm", "-f", name)
        watch.take("`docker rm -f`")
    return watch.costs()
