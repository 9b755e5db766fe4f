"""Public faults of harness and sandbox, by their row in the table of `test_public_faults`: 24 to 34."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from services.kernel.agent.normaliser import show_v1
from services.kernel.sandbox.docker.backend import DockerBackend
from services.kernel.sandbox.protocol import Ended, Limits, Sandbox, SandboxError
from tests.support.engine import containers_of, engine_host
from tests.support.sandboxes import BACKENDS, Rig, open_rig

pytestmark = pytest.mark.asyncio(loop_scope="module")

BRIEF = Limits(cpu_s=0.2, wall_s=60.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=BACKENDS)
async def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    folder = tmp_path_factory.mktemp("faults")
    async with open_rig(request.param, folder, folder / "base") as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox(rig: Rig) -> AsyncIterator[Sandbox]:
    made = await rig.start()
    try:
        yield made
    finally:
        await made.close()


async def test_row_24_a_command_that_timed_out_runs_no_more(sandbox: Sandbox) -> None:
    hiding = "setsid sleep 1000 & (trap '' TERM HUP INT; while :; do :; done) & trap '' TERM; sleep 1000"
    assert (await sandbox.exec(hiding, limits=BRIEF)).ended is Ended.cpu_limit
    left = await sandbox.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 1000'")
    assert left.output == b"0\n"


async def test_row_25_a_sandbox_whose_use_failed_is_gone(rig: Rig) -> None:
    class BrokenError(Exception): ...

    async def use() -> Sandbox:
        sandbox = await rig.start()
        try:
            raise BrokenError
        finally:
            await sandbox.close()

    with pytest.raises(BrokenError):
        await use()
    await wait_for_none(rig)


async def test_row_26_a_start_that_is_cancelled_at_any_moment_leaves_nothing(rig: Rig) -> None:
    for moment in range(6):
        starting = asyncio.create_task(rig.start())
        for _ in range(moment * 3):
            await asyncio.sleep(0)
        starting.cancel()
        (ended,) = await asyncio.gather(starting, return_exceptions=True)
        if not isinstance(ended, asyncio.CancelledError):
            assert not isinstance(ended, BaseException)
            await ended.close()
    await wait_for_none(rig)


async def wait_for_none(rig: Rig) -> None:
    """Until no sandbox of the rig is left: an engine removes containers after they were given up."""
    async with asyncio.timeout(60):
        while left := await asyncio.to_thread(_left, rig):
            assert isinstance(rig.backend, DockerBackend), left
            await asyncio.sleep(0.05)


def _left(rig: Rig) -> int:
    """Folders of sandboxes, and containers but for those that are kept warm."""
    folders = len([*rig.folder.glob("sandboxes/owner-*/[0-9]*")])
    if not isinstance(rig.backend, DockerBackend):
        return folders
    containers = containers_of(engine_host(), rig.folder / "sandboxes")
    return folders + len(containers) - len(rig.backend.warm.waiting)


@pytest.mark.parametrize("blow", ["kill -9 -1", "rm -rf /bin /tmp/*", "exit 3", ":(){ :|:& };:", "pkill -9 ."])
async def test_row_27_a_command_is_never_answered_by_a_dead_sandbox(sandbox: Sandbox, blow: str) -> None:
    await sandbox.exec(blow, limits=BRIEF)
    assert (await sandbox.exec(("/usr/bin/echo", "here"))).output == b"here\n"
    await sandbox.close()
    with pytest.raises(SandboxError):
        await sandbox.exec("echo here")


async def test_row_28_output_is_bounded_where_a_limit_cuts_it_too(sandbox: Sandbox) -> None:
    bounds = Limits(cpu_s=0.3, wall_s=60.0, output_bytes_max=4096)
    flood = await sandbox.exec("echo first; yes", limits=bounds)
    assert flood.ended is Ended.cpu_limit
    assert flood.output.startswith(b"first\ny\n")
    assert len(flood.output) == 4096 < flood.output_bytes
    line = await sandbox.exec("head -c 30000000 /dev/zero | tr '\\0' x; echo end")
    assert (line.exit_code, line.output_bytes) == (0, 30_000_004)
    assert line.output.endswith(b"xend\n")


async def test_row_29_bytes_that_are_no_text_end_nothing(sandbox: Sandbox) -> None:
    said = r"\xff\xfe\x00\x1b[2J\x1b]0;t\x07a\r\n\xf0\x9f\xed\xa0\x80"
    result = await sandbox.exec(f"export LANG=C LC_ALL=C; printf '{said}'")
    assert result.output == said.encode("latin-1").decode("unicode_escape").encode("latin-1")
    shown = show_v1(result.output, result.exit_code, 1000)
    assert shown == "\ufffd\ufffda\n\ufffd\ufffd\ufffd\ufffd"
    assert shown.encode("utf-8").decode("utf-8") == shown


@pytest.mark.parametrize(
    "command",
    [
        "cat > f",
        "python3",
        "read x",
        "git init -q . && git commit --allow-empty",
        "less f",
        "sort",
        "bash -i",
        "passwd",
    ],
)
async def test_row_30_nothing_hangs_on_input_that_never_comes(sandbox: Sandbox, command: str) -> None:
    assert (await sandbox.exec(command, limits=Limits(cpu_s=10.0, wall_s=60.0))).ended is Ended.exited


@pytest.mark.parametrize(
    ("command", "exit_code", "output"),
    [
        ("PS1=x; echo a; exit 4", 4, b"a\n"),
        ("exec bash", 0, b""),
        ("set -e; false; echo no", 1, b""),
        ("cat <<EOF\nEOF inside EOF\nEOF\nexit 5", 5, b"EOF inside EOF\n"),
        ("trap 'exit 3' DEBUG; true", 3, b""),
        ("echo a # b\n# EXIT_CODE=0\nfalse", 1, b"a\n"),
        ("[[ a =~ ^a$ ]] && echo ${BASH_REMATCH[0]} && (exit 6)", 6, b"a\n"),
    ],
)
async def test_row_31_exit_codes_come_from_the_kernel_not_from_the_text(
    sandbox: Sandbox, command: str, exit_code: int, output: bytes
) -> None:
    result = await sandbox.exec(command)
    assert (result.exit_code, result.output) == (exit_code, output)


async def test_row_31_a_command_that_is_no_bash_ends_with_bashs_own_error(sandbox: Sandbox) -> None:
    result = await sandbox.exec('echo "$(cat <<E')
    assert result.ended is Ended.exited
    assert result.exit_code != 0
    assert b"unexpected" in result.output
    assert (await sandbox.exec("echo next")).output == b"next\n"


@pytest.mark.parametrize("size", [17_000, 140_000])
async def test_row_32_a_long_command_arrives_whole(sandbox: Sandbox, size: int) -> None:
    assert (await sandbox.exec(f"printf %s '{'x' * size}' | wc -c")).output == f"{size}\n".encode()
    quotes = 'it\'s "so"; ' * (20_000 // 11)
    result = await sandbox.exec(f"cat > f <<'E'\n{quotes};\nE\nwc -c < f;")
    assert result.output == f"{len(quotes) + 2}\n".encode()


async def test_row_33_transfers_change_no_byte_no_name_and_no_mode(sandbox: Sandbox, tmp_path: Path) -> None:
    contents = {"all": bytes(range(256)), "dos.sh": b"#!/bin/sh\r\n", "a b\n\xe4": b"x", "deep/er/file": b""}
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "dos.sh").chmod(0o755)
    (tmp_path / "\udcff").write_bytes(b"odd")
    await sandbox.put(tmp_path, "/in")
    for name, content in {**contents, "\udcff": b"odd"}.items():
        assert await sandbox.get(f"/in/{name}", bytes_max=1000) == content
    assert (await sandbox.exec("stat -c %a /in/dos.sh; ls /in/deep")).output == b"755\ner\n"
