"""What only the Docker backend has: an interpreter of its own, an engine that may be away, warm containers."""

import asyncio
import io
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from services.kernel.sandbox.base import host_base
from services.kernel.sandbox.docker.backend import DockerBackend
from services.kernel.sandbox.docker.engine import Engine
from services.kernel.sandbox.docker.options import OWNER_LABEL, DockerOptions
from services.kernel.sandbox.protocol import Ended, Image, Mount, Pins, SandboxError, SandboxRefusedError
from tests.support.engine import BASE_IMAGE, base_image, containers_of, engine_host
from tests.support.sandboxes import SMALL, Rig, open_rig


@pytest.fixture
def host() -> str:
    return engine_host()


@pytest.fixture
def image(host: str, tmp_path_factory: pytest.TempPathFactory) -> Image:
    return base_image(host, tmp_path_factory.getbasetemp() / "sandbox-base")


@pytest.fixture
async def rig(host: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    async with open_rig("docker", tmp_path, tmp_path_factory.getbasetemp() / "sandbox-base") as made:
        yield made


def docker_of(rig: Rig) -> DockerBackend:
    assert isinstance(rig.backend, DockerBackend)
    return rig.backend


@asynccontextmanager
async def opened(host: str) -> AsyncIterator[Engine]:
    engine = await asyncio.to_thread(Engine, host)
    try:
        yield engine
    finally:
        engine.close()


@asynccontextmanager
async def imported(host: str, files: dict[str, bytes], **settings: str) -> AsyncIterator[str]:
    """A small image with these files, and `ENV`, `USER` or `WORKDIR` lines; removed in the end."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
    changes = [f"{name} {value}" for name, value in settings.items()]
    async with opened(host) as engine:
        api = engine.client.api
        loaded = await asyncio.to_thread(api.import_image_from_data, data.getvalue(), changes=changes, repository=None)
        image_id = loaded.split('"status":"')[-1].split('"')[0]
        yield image_id
        await asyncio.to_thread(api.remove_image, image_id)


async def test_an_image_without_any_program_starts(rig: Rig, host: str) -> None:
    passwd = b"root:x:0:0::/root:/bin/sh\nworker:x:1234:77::/home/w:/bin/sh\n"
    files = {"etc/passwd": passwd, "data/f": b"1\n", "usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1": b"elf"}
    settings = {"ENV": "LD_PRELOAD=/data/f A=b", "USER": "worker", "WORKDIR": "/srv/w"}
    async with imported(host, files, **settings) as image_id:
        image = await docker_of(rig).image_of(image_id)
        assert (image.engine_id, image.passwd.encode(), image.user, image.workdir) == (
            image_id,
            passwd,
            "worker",
            "/srv/w",
        )
        assert image.env == (("LD_PRELOAD", "/data/f"), ("A", "b"))
        assert image.faketime == "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
        sandbox = await rig.backend.start(image)
        missing = await sandbox.exec("true")
        assert (missing.exit_code, missing.output) == (127, b"bash: command not found\n")
        assert await sandbox.get("/data/f", bytes_max=9) == b"1\n"
        tree = await sandbox.get_tree("/data", files_max=3, bytes_max=99)
        assert list(tree) == ["f"]
        await sandbox.close()
        await docker_of(rig).settle()


@asynccontextmanager
async def with_volume(host: str, place: str) -> AsyncIterator[str]:
    """The base with a `VOLUME` line."""
    async with opened(host) as engine:
        api, labels = engine.client.api, {"envwheel": "1"}
        container = await asyncio.to_thread(engine.create, "", {"Image": BASE_IMAGE, "Cmd": ["/"], "Labels": labels})
        made = await asyncio.to_thread(api.commit, container, changes=[f"VOLUME {place}"])
        await asyncio.to_thread(engine.remove, container)
        yield made["Id"]
        await asyncio.to_thread(api.remove_image, made["Id"])


async def test_what_lies_in_a_volume_of_the_image_is_part_of_a_snapshot_and_goes_with_its_container(
    rig: Rig, host: str
) -> None:
    async with with_volume(host, "/etc/apt") as image_id, opened(host) as engine:
        backend = docker_of(rig)
        image = await backend.image_of(image_id)
        await backend.settle()
        owned = f"{OWNER_LABEL}={next((rig.folder / 'sandboxes').glob('owner-*'))}"
        sandbox = await backend.start(image, limits=SMALL)
        assert (
            await sandbox.exec("echo new > /etc/apt/f; ls -d /etc/apt/*")
        ).output == b"/etc/apt/apt.conf.d\n/etc/apt/f\n"
        snapshot = await sandbox.snapshot()
        trusted = await backend.start(image, limits=SMALL, snapshot=snapshot, trusted_system=True)
        assert (await trusted.exec("cat /etc/apt/f")).output == b"new\n"
        mounts = [mount for found in await asyncio.to_thread(engine.containers, owned) for mount in found["Mounts"]]
        names = {mount["Name"] for mount in mounts if mount["Type"] == "volume"}
        assert len(names) >= 2
        await trusted.close()
        await backend.drop(snapshot)
        await backend.close()
        left = (await asyncio.to_thread(engine.client.api.volumes))["Volumes"] or []
        assert not names & {volume["Name"] for volume in left}


async def test_a_command_has_the_users_own_groups_and_no_capability(rig: Rig) -> None:
    sandbox = await rig.start(pins=Pins(user_uid=1000))
    look = "id; grep -h Cap...: /proc/self/status; touch /etc/x; kill -9 1; sleep 60 & echo x > $HOME/f"
    shown = await sandbox.exec(look)
    assert b"uid=1000(agent) gid=1000(agent) groups=1000(agent)" in shown.output
    assert b"CapPrm:\t0000000000000000\nCapEff:\t0000000000000000" in shown.output
    assert b"cannot touch '/etc/x': Permission denied" in shown.output
    assert await sandbox.get("/home/agent/f", bytes_max=9) == b"x\n"
    assert (await sandbox.exec("sleep 60", limits=replace(SMALL, wall_s=0.3))).exit_code == 137
    deleted = "exec 3> /tmp/f; rm /tmp/f; for i in 1 2 3; do head -c 12M /dev/zero >&3; done; sleep 20"
    assert (await sandbox.exec(deleted)).ended is Ended.disk_limit
    hold = "python3 -c 'import time; held = bytearray(50 << 20); time.sleep(9)'"
    assert (await sandbox.exec(f"for i in 1 2 3; do {hold} & done; wait")).ended is Ended.memory_limit
    assert len((await sandbox.exec("echo /proc/[0-9]*")).output.split()) == 2


async def test_nothing_that_an_agent_leaves_gets_into_the_supervisor(rig: Rig) -> None:
    """A plain start from its snapshot shows all of it, and PID 1 runs all the same."""
    sandbox = await rig.start()
    await sandbox.exec(
        "rm -f /usr/bin/python3; echo /app/none.so > /etc/ld.so.preload; rm -f /etc/ld.so.cache; "
        "mkdir -p /root/.local/lib; rm -rf /usr/lib/python3*; echo left > /app/f"
    )
    snapshot = await sandbox.snapshot()
    plain = await rig.start(snapshot=snapshot)
    shown = await plain.exec("cat /etc/ld.so.preload /app/f 2>/dev/null; ls /usr/bin/python3")
    assert shown.output.endswith(b"ls: cannot access '/usr/bin/python3': No such file or directory\n")
    assert b"/app/none.so\nleft\n" in shown.output
    assert (await plain.get("/etc/ld.so.preload", bytes_max=99)) == b"/app/none.so\n"


async def test_memory_that_only_the_kernel_counts_is_a_memory_limit(rig: Rig) -> None:
    """The sandbox was started for 64 MiB; a command that is allowed more meets what the container has."""
    sandbox = await rig.start(limits=replace(SMALL, memory_bytes_max=64 << 20))
    command = "python3 -c 'bytearray(1 << 29)' & wait $!; echo $?; sleep 9"
    result = await sandbox.exec(command, limits=replace(SMALL, memory_bytes_max=1 << 30))
    assert (result.ended, result.exit_code) == (Ended.memory_limit, 137)
    assert (await sandbox.exec("echo alive")).output == b"alive\n"


async def test_an_unknown_image_and_an_image_of_layers_are_refused(rig: Rig, tmp_path: Path) -> None:
    with pytest.raises(SandboxRefusedError, match="docker pull"):
        await docker_of(rig).image_of("envwheel/never:1")
    with pytest.raises(SandboxRefusedError, match="no image"):
        await rig.backend.start(replace(rig.image, engine_id="sha256:" + "0" * 64))
    layers = await asyncio.to_thread(host_base, tmp_path / "base")
    with pytest.raises(SandboxRefusedError, match="builder for Docker"):
        await rig.backend.start(layers.image())
    with pytest.raises(SandboxRefusedError, match="cannot mount"):
        await rig.start(mounts=(Mount(tmp_path / "gone", "/data"),))


async def test_an_engine_that_is_away_is_named_with_what_to_do(tmp_path: Path, image: Image) -> None:
    async with DockerBackend(tmp_path / "w", DockerOptions(host=f"unix://{tmp_path}/none.sock")) as backend:
        for attempt in (backend.self_check(), backend.start(image)):
            with pytest.raises(SandboxError, match="DOCKER_HOST"):
                await attempt
    assert not (tmp_path / "w").exists()


async def test_a_start_that_fails_or_is_cancelled_leaves_no_container(rig: Rig, host: str) -> None:
    await (await rig.start()).close()
    with pytest.raises(SandboxError, match="no-such-runtime"):
        async with DockerBackend(rig.folder / "odd", DockerOptions(host=host, runtime="no-such-runtime")) as odd:
            await odd.start(rig.image)
    assert await asyncio.to_thread(containers_of, host, rig.folder / "odd") == []
    for delay_s in (0.0, 0.01, 0.04, 0.1, 0.2):
        task = asyncio.create_task(rig.start())
        await asyncio.sleep(delay_s)
        task.cancel()
        try:
            await (await task).close()
        except asyncio.CancelledError:
            continue
    await rig.backend.close()
    assert await asyncio.to_thread(containers_of, host, rig.folder / "sandboxes") == []
    assert [path.name for path in (rig.folder / "sandboxes").iterdir()] == ["lock"]


async def test_a_container_waits_for_a_kind_that_was_asked_for_twice(host: str, image: Image, tmp_path: Path) -> None:
    async with DockerBackend(tmp_path / "w", DockerOptions(host=host, warm_max=1)) as backend:
        for expected in ([], ["running"]):
            sandbox = await backend.start(image, limits=SMALL)
            await sandbox.exec("echo mine > /tmp/f")
            await sandbox.close()
            await backend.settle()
            assert await asyncio.to_thread(containers_of, host, tmp_path / "w") == expected
        waiting = backend.warm.waiting[0]
        third = await backend.start(image, limits=SMALL, pins=Pins(timezone="Asia/Tokyo"))
        assert third.container is waiting
        assert (await third.exec("ls /tmp; date +%Z")).output == b"JST\n"
        other = await backend.start(image, limits=SMALL, pins=Pins(hostname="other"))
        assert (await other.exec("hostname")).output == b"other\n"
    assert await asyncio.to_thread(containers_of, host, tmp_path / "w") == []


async def test_a_warm_container_that_has_ended_is_not_given_out(host: str, image: Image, tmp_path: Path) -> None:
    async with DockerBackend(tmp_path / "w", DockerOptions(host=host, warm_max=1)) as backend:
        for _ in range(2):
            await (await backend.start(image, limits=SMALL)).close()
        await backend.settle()
        dead = backend.warm.waiting[0]
        await dead.remove()
        sandbox = await backend.start(image, limits=SMALL)
        assert sandbox.container is not dead
        assert (await sandbox.exec("echo fresh")).output == b"fresh\n"


async def test_a_replaced_mount_source_is_another_kind(host: str, image: Image, tmp_path: Path) -> None:
    source = tmp_path / "in"
    async with DockerBackend(tmp_path / "w", DockerOptions(host=host, warm_max=1)) as backend:
        for text in ("one", "two", "three"):
            source.rename(tmp_path / f"was-{text}") if source.exists() else None
            source.mkdir()
            (source / "f").write_text(text)
            for _ in range(2):
                sandbox = await backend.start(image, limits=SMALL, mounts=(Mount(source, "/in"),))
                assert (await sandbox.exec("cat /in/f")).output == text.encode()
                await sandbox.close()
                await backend.settle()


async def test_the_probe_image_must_be_there(host: str, tmp_path: Path) -> None:
    async with DockerBackend(tmp_path / "w", DockerOptions(host=host, probe_image="envwheel/never:1")) as backend:
        with pytest.raises(SandboxRefusedError, match="envwheel/never:1"):
            await backend.self_check()
    assert DockerOptions().probe_image == BASE_IMAGE
