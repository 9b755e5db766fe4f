"""What an agent may try against its sandbox, one property a test; any backend must stand it."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from services.kernel.sandbox.protocol import Ended, ExecResult, Sandbox, SandboxRefusedError
from tests.support.sandboxes import BACKENDS, SMALL, Rig, open_rig

ALIVE = b"alive\n"


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(params=BACKENDS, scope="module", loop_scope="module")
async def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    base = tmp_path_factory.getbasetemp() / "sandbox-base"
    async with open_rig(request.param, tmp_path_factory.mktemp(request.param), base) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def rig(shared: Rig) -> AsyncIterator[Rig]:
    yield shared
    await shared.close()


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox(rig: Rig) -> Sandbox:
    return await rig.start()


def layers_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.name == "upper")


async def python(sandbox: Sandbox, script: str) -> ExecResult:
    return await sandbox.exec(("python3", "-c", script))


@pytest.mark.parametrize(
    "attack",
    [
        "kill -9 -1",
        "kill -9 1; kill -STOP 1; kill -INT 1; kill -HUP 1; kill -SEGV 1; kill -XCPU 1",
        "exit; exit 1",
        "kill -9 $PPID",
        "exec 0<&- 1>&- 2>&-; sleep 0.1",
        'for fd in /proc/self/fd/*; do eval "exec ${fd##*/}>&-"; done',
        "renice -n 19 -p 1; ulimit -n 3; ulimit -u 1; echo 1 > /proc/1/oom_score_adj",
        "prlimit --pid 1 --nofile=0 --cpu=0 --as=1",
        "chrt -i -p 0 1; taskset -p 1 1",
        "setsid bash -c 'kill -9 -1'; sleep 5",
    ],
)
async def test_the_supervisor_outlives(sandbox: Sandbox, attack: str) -> None:
    await sandbox.exec(attack, limits=replace(SMALL, wall_s=5.0))
    assert (await sandbox.exec("echo alive")).output == ALIVE


async def test_removing_everything_ends_no_sandbox(sandbox: Sandbox) -> None:
    await sandbox.exec("rm -rf /bin /sbin /lib* /etc /app /tmp /logs /root /home /var /opt /usr/bin/bash 2>/dev/null")
    assert (await sandbox.exec("echo alive")).exit_code == 126
    result = await sandbox.exec("echo alive", cwd="/")
    assert (result.ended, result.exit_code) == (Ended.exited, 127)
    with pytest.raises(FileNotFoundError):
        await sandbox.get("/app/anything", bytes_max=10)


async def test_a_fork_bomb_is_held_and_leaves_nothing(sandbox: Sandbox) -> None:
    result = await sandbox.exec(":(){ :|:& };:; sleep 30", limits=replace(SMALL, wall_s=2.0))
    assert result.ended in (Ended.pids_limit, Ended.wall_limit)
    assert len((await sandbox.exec("echo /proc/[0-9]*")).output.split()) == 2


async def test_processes_cannot_be_more_than_allowed(sandbox: Sandbox) -> None:
    script = (
        "import os, time\ntry:\n for n in range(500):\n  os.fork() or (time.sleep(3), os._exit(0))\n"
        "except OSError: print(n)"
    )
    started = time.monotonic()
    result = await python(sandbox, script)
    assert time.monotonic() - started < 8
    assert result.ended is Ended.pids_limit or int(result.output) <= SMALL.pids_max


async def test_threads_count_as_processes(sandbox: Sandbox) -> None:
    script = (
        "import threading, time\nthreading.stack_size(65536)\n"
        "try:\n for n in range(300): threading.Thread(target=time.sleep, args=(2,), daemon=True).start()\n"
        "except RuntimeError: pass\nelse: print('all')\ntime.sleep(1)"
    )
    result = await python(sandbox, script)
    assert result.ended is Ended.pids_limit or b"all" not in result.output


@pytest.mark.parametrize(
    "attack",
    [
        'was=$(cat /proc/sys/kernel/core_pattern) && echo "$was" > /proc/sys/kernel/core_pattern',
        "echo h > /proc/sysrq-trigger",
        "unshare -U true",
        "unshare -m true",
        "unshare -n true",
        "mount -t tmpfs x /mnt",
        "mount --bind /app /usr",
        "umount /proc",
        "umount -l /usr",
        "chroot / true",
        "mknod /app/disk b 254 0 && head -c 1 /app/disk",
        "touch /dev/x",
        "cat /proc/1/environ",
        "ls -l /proc/1/cwd/",
        "readlink /proc/1/fd/3",
        "head -c 1 /proc/1/mem",
        "cat /proc/1/maps | grep .",
        "chrt -i -p 0 1",
        "python3 -c 'import os; os.setpriority(os.PRIO_PROCESS, 1, 19)'",
        "python3 -c 'import os; os.setpriority(os.PRIO_USER, os.getuid(), 19)'",
        "dmesg",
        "hostname other",
        "date -s 2001-01-01",
        "nice -n -5 true 2>&1 | grep -qv cannot",
        "tail -n +2 /proc/net/route | grep .",
        "ls /root/.ssh /home/*/.ssh",
        "timeout 2 bash -c 'echo > /dev/tcp/192.0.2.1/80'",
        "getent hosts example.org",
    ],
)
async def test_inside_there_is_no_way_to(sandbox: Sandbox, attack: str) -> None:
    assert (await sandbox.exec(attack)).exit_code not in (0, 127)


async def test_the_supervisor_cannot_be_traced(sandbox: Sandbox) -> None:
    script = (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "traced = [libc.ptrace(request, 1, 0, 0) for request in (16, 0x4206)]\n"
        "print(traced, libc.syscall(438, libc.syscall(434, 1, 0), 3, 0))"
    )
    assert (await python(sandbox, script)).output == b"[-1, -1] -1\n"


async def test_memory_cannot_hide_outside_of_processes(sandbox: Sandbox) -> None:
    shm = await sandbox.exec("head -c 200M /dev/zero > /dev/shm/x; s=$?; rm /dev/shm/x; exit $s")
    assert shm.exit_code != 0
    assert (await python(sandbox, "import os; os.memfd_create('x')")).exit_code == 1
    segments = (
        "import ctypes, time\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\n"
        "for _ in range(12):\n at = libc.shmat(libc.shmget(0, 30 << 20, 0o1600), None, 0)\n"
        " ctypes.memset(at, 1, 30 << 20); libc.shmdt(ctypes.c_void_p(at))\ntime.sleep(5)"
    )
    assert (await python(sandbox, segments)).ended is Ended.memory_limit


async def test_a_large_process_in_the_background_is_ended_between_calls(sandbox: Sandbox) -> None:
    grow = "import time; time.sleep(0.3); held = bytearray(90 << 20); time.sleep(60)"
    await sandbox.exec(f"for i in 1 2; do python3 -c '{grow}' & done")
    await asyncio.sleep(1.5)
    assert len((await sandbox.exec("echo /proc/[0-9]*")).output.split()) == 2


async def test_deleted_files_count_while_they_are_open(sandbox: Sandbox) -> None:
    script = "exec 3> /tmp/f; rm /tmp/f; for i in 1 2 3; do head -c 12M /dev/zero >&3; exec 4>&3; done; sleep 20"
    assert (await sandbox.exec(f"{script} 2>/dev/null")).ended is Ended.disk_limit


async def test_files_in_a_closed_folder_count(sandbox: Sandbox) -> None:
    script = "mkdir -p a/b; for i in 1 2 3; do head -c 9M /dev/zero > a/b/$i; done; chmod 000 a/b a; sleep 20"
    assert (await sandbox.exec(script)).ended is Ended.disk_limit


async def test_files_too_deep_for_any_path_count_and_can_be_removed(rig: Rig) -> None:
    before = layers_below(rig.folder)
    sandbox = await rig.start()
    script = (
        "import os\nname = 'd' * 200\nfor _ in range(60): os.mkdir(name); os.chdir(name)\n"
        "for n in range(3): open(str(n), 'wb').write(bytes(9 << 20))"
    )
    assert (await python(sandbox, script)).ended is Ended.disk_limit
    await sandbox.close()
    assert layers_below(rig.folder) == before


async def test_many_empty_files_count(sandbox: Sandbox) -> None:
    script = "import os\nfor n in range(6000): os.close(os.open(f'/tmp/{n}', os.O_CREAT))"
    result = await sandbox.exec(("python3", "-c", script), limits=replace(SMALL, disk_bytes_max=2 << 20))
    assert result.ended is Ended.disk_limit


async def test_links_lead_nowhere_on_the_host(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("host secret")
    (tmp_path / "f").write_text("new")
    target = tmp_path / "victim"
    await sandbox.exec(
        f"ln -s {tmp_path}/secret /app/out; ln -s {tmp_path} /app/dir; ln -s /etc /tests; ln -s {target} /app/v"
    )
    for path in ("/app/out", "/app/dir/secret", f"{tmp_path}/secret"):
        with pytest.raises((SandboxRefusedError, FileNotFoundError)):
            await sandbox.get(path, bytes_max=100)
    with pytest.raises(SandboxRefusedError):
        await sandbox.put(tmp_path / "f", "/tests/passwd")
    with pytest.raises(SandboxRefusedError):
        await sandbox.put(tmp_path / "f", "/app/dir/victim")
    await sandbox.put(tmp_path / "f", "/app/v")
    assert not target.exists()
    assert (await sandbox.exec("cat /app/v; head -1 /etc/passwd")).output == b"newroot:x:0:0:root:/root:/bin/bash\n"


async def test_special_files_hang_no_transfer(sandbox: Sandbox, tmp_path: Path) -> None:
    await sandbox.exec(
        "mkfifo p; truncate -s 1M big; mkdir d; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('s')\""
    )
    (tmp_path / "f").write_text("x")
    for path in ("/app/p", "/app/s", "/proc/kmsg", "/proc/1/mem", "/app/big", "/dev/tty", "/app"):
        with pytest.raises(SandboxRefusedError):
            await asyncio.wait_for(sandbox.get(path, bytes_max=1000), 5)
    await sandbox.put(tmp_path / "f", "/app/p")
    assert await sandbox.get("/app/p", bytes_max=1) == b"x"
    with pytest.raises(SandboxRefusedError):
        await sandbox.put(tmp_path / "f", "/app/d")


async def test_a_race_of_links_never_leads_out(sandbox: Sandbox, tmp_path: Path) -> None:
    swap = "mkdir real; while :; do mv real x; ln -s /etc real; rm real; mv x real; done"
    await sandbox.exec(f"({swap}) &")
    (tmp_path / "f").write_text("written")
    for _ in range(100):
        try:
            await sandbox.put(tmp_path / "f", "/app/real/passwd")
        except SandboxRefusedError:
            continue
    assert (await sandbox.exec("grep -c written /etc/passwd")).output == b"0\n"


async def test_a_flood_of_output_costs_no_memory_and_ends(sandbox: Sandbox) -> None:
    limits = replace(SMALL, wall_s=1.0, output_bytes_max=4096)
    result = await sandbox.exec("yes", limits=limits)
    assert result.ended in (Ended.wall_limit, Ended.cpu_limit)
    assert (len(result.output), result.output_bytes > 1 << 20) == (4096, True)
    assert (await sandbox.exec("echo alive")).output == ALIVE


async def test_no_descriptor_of_the_host_is_inherited(sandbox: Sandbox) -> None:
    shown = await python(sandbox, "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])")
    assert shown.output == b"[0, 1, 2]\n"


async def test_names_of_host_folders_do_not_reach_the_environment(sandbox: Sandbox) -> None:
    assert os.fsencode(Path.cwd()) not in (await sandbox.exec("env; cat /proc/self/environ /proc/1/cmdline")).output
