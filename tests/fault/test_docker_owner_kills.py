"""A process that makes Docker sandboxes is killed at any point: the reaper leaves nothing of it, and all of others."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.kernel.sandbox.docker.backend import DockerBackend
from services.kernel.sandbox.docker.engine import Engine
from services.kernel.sandbox.docker.options import LABEL, OWNER_LABEL, PROCESS_LABEL, DockerOptions
from services.kernel.sandbox.docker.reaper import is_dead, reap, this_process
from tests.support.engine import BASE_IMAGE, containers_of, engine_host

REPOSITORY = Path(__file__).parents[2]
OWNER = """
import asyncio, sys
from pathlib import Path
from services.kernel.sandbox.docker.backend import DockerBackend
from services.kernel.sandbox.docker.options import DockerOptions

async def main(host, work, phase):
    backend = DockerBackend(Path(work), DockerOptions(host=host, warm_max=1))
    image = await backend.image_of("envwheel/base:1")
    sandboxes = [await backend.start(image) for _ in range(2)]
    await sandboxes[0].exec("head -c 20M /dev/urandom > /app/f; setsid sleep 98771 &")
    print("ready", flush=True)
    if phase == "start":
        await asyncio.gather(*(backend.start(image) for _ in range(4)))
    elif phase == "exec":
        await sandboxes[0].exec("trap '' TERM HUP; sleep 98771")
    elif phase == "snapshot":
        snapshot = await sandboxes[0].snapshot()
        while True:
            await (await backend.start(image, snapshot=snapshot, trusted_system=True)).close()
    elif phase == "close":
        await backend.close()
        await asyncio.sleep(60)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def host() -> str:
    return engine_host()


@asynccontextmanager
async def opened(host: str) -> AsyncIterator[Engine]:
    engine = await asyncio.to_thread(Engine, host)
    try:
        yield engine
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("phase", "delay_s"),
    [("start", 0.0), ("start", 0.1), ("exec", 0.1), ("snapshot", 0.3), ("close", 0.0), ("close", 0.1)],
)
async def test_the_reaper_leaves_nothing_of_a_killed_owner(
    host: str, tmp_path: Path, phase: str, delay_s: float
) -> None:
    work = tmp_path / "sandboxes"
    argv = [sys.executable, "-c", OWNER, host, str(work), phase]
    owner = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE, cwd=REPOSITORY)
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"ready\n"
    assert len(await asyncio.to_thread(containers_of, host, work)) >= 2
    await asyncio.sleep(delay_s)
    owner.kill()
    await owner.wait()
    async with opened(host) as engine:
        for _ in range(600):  # the engine may be at work on what the dead owner asked for last
            await asyncio.to_thread(reap, engine)
            await asyncio.sleep(0.1)
            if not await asyncio.to_thread(containers_of, host, work):
                break
    assert await asyncio.to_thread(containers_of, host, work) == []
    async with DockerBackend(work, DockerOptions(host=host)) as successor:
        await successor.image_of(BASE_IMAGE)
        assert len(list(work.glob("owner-*"))) == 1
    assert [path.name for path in work.iterdir()] == ["lock"]


async def test_without_any_reaper_the_processes_of_a_killed_owner_end(host: str, tmp_path: Path) -> None:
    work = tmp_path / "sandboxes"
    argv = [sys.executable, "-c", OWNER, host, str(work), "exec"]
    owner = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE, cwd=REPOSITORY)
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"ready\n"
    owner.kill()
    await owner.wait()
    states = ["running"]
    for _ in range(600):
        states = await asyncio.to_thread(containers_of, host, work)
        if "running" not in states:
            break
        await asyncio.sleep(0.1)
    assert set(states) == {"exited"}
    ended = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.cli", "sandbox", "reap", "--docker-host", host, "--json"),
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
    )
    said, _ = await ended.communicate()
    assert ended.returncode == 0
    assert len([name for name in json.loads(said)["removed"] if name.startswith("envwheel-owner-")]) >= len(states)
    assert await asyncio.to_thread(containers_of, host, work) == []


async def test_what_belongs_to_the_living_is_left_alone(host: str, tmp_path: Path) -> None:
    async with DockerBackend(tmp_path / "a", DockerOptions(host=host)) as living, opened(host) as engine:
        sandbox = await living.start(await living.image_of(BASE_IMAGE))
        await sandbox.exec("echo kept > f")
        reaped = await asyncio.to_thread(reap, engine)
        assert reaped.alive
        assert (await sandbox.exec("cat f")).output == b"kept\n"


async def test_an_owner_that_cannot_be_seen_is_neither_dead_nor_alive(host: str, tmp_path: Path) -> None:
    boot, namespace, pid, start = this_process().split("/")
    unseen = {OWNER_LABEL: "/not/on/this/machine/owner-x"}
    assert is_dead({**unseen, PROCESS_LABEL: this_process()}) is False
    assert is_dead({**unseen, PROCESS_LABEL: f"{boot}/{namespace}/{pid}/{int(start) + 1}"}) is True
    assert is_dead({**unseen, PROCESS_LABEL: f"{boot}/{namespace}/99999999/1"}) is True
    for elsewhere in (f"{boot}/1/{pid}/{start}", f"other/{namespace}/{pid}/{start}", "nonsense", ""):
        assert is_dead({**unseen, PROCESS_LABEL: elsewhere}) is None
    assert is_dead({OWNER_LABEL: str(tmp_path / "owner-gone"), PROCESS_LABEL: ""}) is True
    assert is_dead({OWNER_LABEL: str(tmp_path / "no-owner"), PROCESS_LABEL: ""}) is None
    async with opened(host) as engine:
        labels = {LABEL: "1", **unseen, PROCESS_LABEL: f"other/{namespace}/1/1"}
        container = await asyncio.to_thread(
            engine.create, f"envwheel-test-{tmp_path.name}", {"Image": BASE_IMAGE, "Cmd": ["/"], "Labels": labels}
        )
        try:
            assert f"envwheel-test-{tmp_path.name}" in (await asyncio.to_thread(reap, engine)).unknown
        finally:
            await asyncio.to_thread(engine.remove, container)
