"""What a sandbox backend promises, whichever it is: a new one joins by its name in tests.support.sandboxes.BACKENDS."""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from services.kernel.sandbox.protocol import (
    Ended,
    Limits,
    Mount,
    Pins,
    Sandbox,
    SandboxError,
    SandboxRefusedError,
)
from tests.support.sandboxes import BACKENDS, SMALL, Rig, open_rig

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


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        ("true", 0),
        ("exit 7", 7),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
        ("no-such-program", 127),
        ("/etc", 126),
        ("set -e; false; echo no", 1),
        ("trap 'exit 3' DEBUG; true", 3),
        ("exec bash", 0),
        ("PS1=x; exit 4", 4),
        (("no-such-program",), 127),
        (("/etc/passwd",), 126),
        (("sh", "-c", "exit 9"), 9),
    ],
)
async def test_an_exit_code_is_what_bash_would_report(rig: Rig, command: str | tuple[str, ...], exit_code: int) -> None:
    result = await rig.run(command)
    assert (result.exit_code, result.ended) == (exit_code, Ended.exited)


async def test_stdout_and_stderr_come_merged_and_in_order(sandbox: Sandbox) -> None:
    result = await sandbox.exec("echo one; echo two >&2; echo three; cat <<E\nE2\nE")
    assert result.output == b"one\ntwo\nthree\nE2\n"
    assert result.output_bytes == len(result.output)


async def test_bytes_stay_bytes(sandbox: Sandbox) -> None:
    odd = b"\xff\xfe\x00\x1b[2J\r\n\xf0\x9f\xed\xa0\x80"
    assert (await sandbox.exec("cat", stdin=odd)).output == odd


async def test_an_argv_is_no_shell_line(sandbox: Sandbox) -> None:
    assert (await sandbox.exec(("printf", "%s|", "$HOME", "a b", ";"))).output == b"$HOME|a b|;|"


@pytest.mark.parametrize("command", ["cat", "python3", "read x", "sort", "git init -q . && git commit --allow-empty"])
async def test_a_command_that_waits_for_input_meets_its_end_at_once(sandbox: Sandbox, command: str) -> None:
    result = await sandbox.exec(command, limits=replace(SMALL, wall_s=10.0))
    assert result.ended is Ended.exited


async def test_more_stdin_than_a_pipe_holds_arrives_whole_and_unread_stdin_hurts_nobody(sandbox: Sandbox) -> None:
    data = os.urandom(3 << 20)
    assert (await sandbox.exec("wc -c", stdin=data)).output.split() == [b"3145728"]
    assert (await sandbox.exec("head -c 3", stdin=data)).output == data[:3]
    assert (await sandbox.exec("true", stdin=data)).exit_code == 0


@pytest.mark.parametrize("size", [17_000, 131_071, 140_000, 2_000_000])
async def test_a_script_may_be_longer_than_an_argument(sandbox: Sandbox, size: int) -> None:
    words = "x" * size
    result = await sandbox.exec(f"cat <<'E' | wc -c\n{words}\nE\nexit 5")
    assert (result.output.strip(), result.exit_code) == (str(size + 1).encode(), 5)


async def test_the_environment_is_fixed_and_a_call_may_add_to_it(
    rig: Rig, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_HOST", "1")
    sandbox = await rig.start()
    seen = dict(line.split("=", 1) for line in (await sandbox.exec("env")).output.decode().splitlines())
    fixed = {
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "dumb",
        "PYTHONHASHSEED": "0",
    }
    assert fixed.items() <= seen.items()
    assert "SECRET_OF_HOST" not in seen
    assert (await sandbox.exec("echo $A $TZ", env={"A": "b c", "TZ": "Asia/Tokyo"})).output == b"b c Asia/Tokyo\n"
    assert (await sandbox.exec("echo $A; umask; ulimit -c")).output == b"\n0022\n0\n"


async def test_a_command_runs_in_the_working_folder_or_where_it_is_told(rig: Rig) -> None:
    sandbox = await rig.start(workdir="/srv/new/deep")
    assert (await sandbox.exec("pwd")).output == b"/srv/new/deep\n"
    assert (await sandbox.exec("pwd", cwd="/tmp")).output == b"/tmp\n"
    assert (await sandbox.exec("pwd", cwd="/gone")).exit_code == 126
    with pytest.raises(SandboxRefusedError):
        await sandbox.exec("pwd", cwd="tmp")


@pytest.mark.parametrize("command", ["", "a\0b", (), ("a", "b\0"), "\ud800"])
async def test_a_command_that_no_process_can_have_is_refused(rig: Rig, command: str | tuple[str, ...]) -> None:
    sandbox = await rig.start()
    if command == "":
        assert (await sandbox.exec(command)).exit_code == 0
        return
    with pytest.raises(SandboxRefusedError):
        await sandbox.exec(command)


async def test_output_is_cut_in_the_middle_and_counted_whole(sandbox: Sandbox) -> None:
    limits = replace(SMALL, output_bytes_max=1001)
    exact = await sandbox.exec("head -c 1001 /dev/zero", limits=limits)
    assert (len(exact.output), exact.output_bytes) == (1001, 1001)
    long = await sandbox.exec("printf start; head -c 100000000 /dev/zero; printf end", limits=limits)
    assert (len(long.output), long.output_bytes) == (1001, 100_000_008)
    assert long.output.startswith(b"start\0")
    assert long.output.endswith(b"\0end")


async def test_a_background_process_lives_on_and_does_not_hold_the_call(sandbox: Sandbox) -> None:
    started = time.monotonic()
    listening = "until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.05; done"
    result = await sandbox.exec(f"python3 -u -m http.server 8000 --bind 127.0.0.1 & echo here > f; {listening}")
    assert result.exit_code == 0
    assert time.monotonic() - started < 20
    fetch = "import urllib.request as u; [print(u.urlopen('http://127.0.0.1:8000/f').read()) for _ in range(3)]"
    assert (await sandbox.exec(("python3", "-c", fetch))).output == b"b'here\\n'\n" * 3


async def test_a_flood_from_the_background_does_not_hold_the_call(sandbox: Sandbox) -> None:
    assert (await sandbox.exec("yes & echo done >&2")).exit_code == 0
    assert (await sandbox.exec("echo next")).output == b"next\n"


async def test_cpu_time_of_the_whole_tree_is_limited(rig: Rig) -> None:
    limits = replace(SMALL, cpu_s=0.4)
    for command in (
        "while :; do :; done",
        "(while :; do :; done) & wait",
        "while :; do timeout 0.1 sh -c 'while :; do :; done'; done",
    ):
        result = await rig.run(command, limits=limits)
        assert result.ended is Ended.cpu_limit
        assert 0.4 <= result.cpu_s < 2.0
        assert result.exit_code == 137


async def test_sleeping_costs_no_cpu_and_meets_the_wall_limit_idle(rig: Rig) -> None:
    result = await rig.run("sleep 60", limits=replace(SMALL, wall_s=0.5, cpu_s=0.2))
    assert (result.ended, result.idle) == (Ended.wall_limit, True)
    assert 0.5 <= result.wall_s < 5.0


async def test_a_busy_tree_at_the_wall_limit_is_not_idle(rig: Rig) -> None:
    result = await rig.run("while :; do :; done", limits=replace(SMALL, wall_s=2.0))
    assert (result.ended, result.idle) == (Ended.wall_limit, False)


async def test_memory_of_one_process_and_of_the_tree_is_limited(rig: Rig) -> None:
    limits = replace(SMALL, memory_bytes_max=64 << 20)
    one = await rig.run("python3 -c 'bytearray(100 << 20)'", limits=limits)
    assert (one.exit_code, b"MemoryError" in one.output) == (1, True)
    hold = "python3 -c 'import time; held = bytearray(25 << 20); time.sleep(9)'"
    many = await rig.run(f"for i in 1 2 3 4; do {hold} & done; wait", limits=limits)
    assert many.ended is Ended.memory_limit


async def test_memory_shared_by_forked_processes_counts_once(rig: Rig) -> None:
    script = (
        "import os, time\nheld = bytearray(b'x') * (40 << 20)\n"
        "for _ in range(4): os.fork() or (time.sleep(0.6), os._exit(0))\ntime.sleep(0.6)"
    )
    result = await rig.run(("python3", "-c", script), limits=replace(SMALL, memory_bytes_max=100 << 20))
    assert (result.ended, result.exit_code) == (Ended.exited, 0)


async def test_disk_use_is_limited_and_the_sandbox_stays_usable(sandbox: Sandbox) -> None:
    limits = replace(SMALL, disk_bytes_max=4 << 20)
    slow = await sandbox.exec("for i in 1 2 3; do head -c 2M /dev/zero > /tmp/$i; done; sleep 30", limits=limits)
    assert slow.ended is Ended.disk_limit
    quick = await sandbox.exec("true", limits=limits)
    assert quick.ended is Ended.disk_limit
    assert (await sandbox.exec("rm /tmp/?")).ended is Ended.exited
    assert (await sandbox.exec("head -c 3M /dev/zero > /tmp/1", limits=limits)).ended is Ended.exited
    assert (await sandbox.exec("head -c 30M /dev/zero > /tmp/1; rm /tmp/1; truncate -s 1T /tmp/2")).exit_code != 0


@pytest.mark.parametrize(
    "script", ["head -c 8M /dev/zero > /logs/verifier/big", "cd /logs/verifier && for i in {1..20000}; do : > $i; done"]
)
async def test_what_is_written_to_a_mount_counts_too(rig: Rig, script: str) -> None:
    folder = rig.folder / "mounted"
    folder.mkdir()
    folder.chmod(0o777)
    sandbox = await rig.start(mounts=(Mount(folder, "/logs/verifier", writable=True),))
    try:
        result = await sandbox.exec(f"{script}; sleep 15", limits=replace(SMALL, disk_bytes_max=4 << 20))
        assert result.ended is Ended.disk_limit
    finally:
        await sandbox.close()
        shutil.rmtree(folder)


async def test_after_a_limit_nothing_of_the_tree_is_left(sandbox: Sandbox) -> None:
    await sandbox.exec("setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &")
    stubborn = "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' & trap '' TERM; sleep 60"
    assert (await sandbox.exec(stubborn, limits=replace(SMALL, wall_s=0.3))).ended is Ended.wall_limit
    assert len((await sandbox.exec("echo /proc/[0-9]*")).output.split()) == 2


async def test_limits_are_finite_and_positive(rig: Rig) -> None:
    for name in Limits.__dataclass_fields__:
        for value in (0, -1, float("inf"), float("nan")):
            wrong: dict[str, Any] = {name: value}
            with pytest.raises(SandboxRefusedError, match=name):
                await rig.start(limits=replace(SMALL, **wrong))


async def test_pins_decide_what_a_program_sees_of_its_surroundings(rig: Rig) -> None:
    pins = Pins(hostname="elsewhere", timezone="Asia/Tokyo", locale="C", user_uid=1000)
    sandbox = await rig.start(pins=pins)
    shown = (await sandbox.exec("hostname; date +%Z; echo $LC_ALL; id -u; id -un; echo $HOME")).output
    assert shown.decode().split() == ["elsewhere", "JST", "C", "1000", "agent", "/home/agent"]
    assert (await sandbox.exec("id -u", user="agent")).output == b"1000\n"
    for user in ("root", "0", "nobody", "x; id", ""):
        with pytest.raises(SandboxRefusedError):
            await sandbox.exec("id", user=user)


async def test_the_image_names_the_user_where_no_pins_do(rig: Rig) -> None:
    sandbox = await rig.backend.start(replace(rig.image, user="agent"))
    assert (await sandbox.exec("id -u")).output == b"1000\n"
    with pytest.raises(SandboxRefusedError, match="stranger"):
        await rig.backend.start(replace(rig.image, user="stranger"))


async def test_root_inside_is_root_over_its_own_files(sandbox: Sandbox) -> None:
    script = "echo x > f; chmod 000 f; cat f; mkdir -m 000 d; touch d/g; chown root:root f; chmod 4755 f; stat -c %a f"
    assert (await sandbox.exec(script)).output == b"x\n4755\n"


async def test_the_folders_that_every_task_expects_are_there(sandbox: Sandbox) -> None:
    shown = await sandbox.exec("stat -c '%a %n' /tmp /logs/agent /logs/verifier /logs/artifacts /app; ls -A /tmp /app")
    assert shown.output.split()[::2][:5] == [b"1777", b"777", b"777", b"777", b"755"]


async def test_sandboxes_at_the_same_time_do_not_see_each_other(rig: Rig) -> None:
    sandboxes = await asyncio.gather(*(rig.start() for _ in range(8)))
    await asyncio.gather(*(box.exec(f"echo {number} > /tmp/f; sleep 30 &") for number, box in enumerate(sandboxes)))
    seen = await asyncio.gather(*(box.exec("cat /tmp/f; pgrep -c sleep") for box in sandboxes))
    assert [result.output for result in seen] == [f"{number}\n1\n".encode() for number in range(8)]
    await asyncio.gather(*(box.close() for box in sandboxes))


async def test_calls_on_one_sandbox_take_turns(sandbox: Sandbox) -> None:
    results = await asyncio.gather(*(sandbox.exec(f"echo {number}; sleep 0.05; echo {number}") for number in range(5)))
    assert [result.output for result in results] == [f"{number}\n{number}\n".encode() for number in range(5)]


async def test_a_cancelled_exec_ends_its_command_and_the_sandbox_goes_on(sandbox: Sandbox) -> None:
    task = asyncio.create_task(sandbox.exec("echo started > /tmp/s; sleep 100"))
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await sandbox.exec("cat /tmp/s; pgrep -c sleep")).output == b"started\n0\n"


async def test_closing_ends_a_running_exec_and_may_be_done_twice(sandbox: Sandbox) -> None:
    task = asyncio.create_task(sandbox.exec("sleep 100"))
    await asyncio.sleep(0.3)
    await sandbox.close()
    await sandbox.close()
    with pytest.raises(SandboxError):
        await task
    with pytest.raises(SandboxError):
        await sandbox.exec("true")
    with pytest.raises(SandboxError):
        await sandbox.get("/etc/passwd", bytes_max=10_000)


async def test_the_self_check_tries_every_limit_and_says_how_it_is_held(rig: Rig) -> None:
    check = await rig.backend.self_check()
    needed = frozenset({"network", "memory", "pids", "cpu", "wall", "disk", "output", "kill", "isolation", "user"})
    assert {each.name for each in check.checks} == needed | {"clock"}
    assert check.missing(needed) == ()
    assert all(each.how for each in check.checks)
    if check.missing(frozenset({"clock"})):
        with pytest.raises(SandboxRefusedError, match="faketime"):
            await rig.start(pins=Pins(clock_offset_s=86_400))
