"""The mesh of one machine: it ends whole, however it ends, and goes on where it was.

One run tells the story: it is killed, interrupted and resumed, and its log is in order at the end.
"""

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from schemas.codec import same_body
from services.cli.launch import open_the_way
from services.cli.users import GID
from services.kernel.jetstream_log import connect
from services.kernel.log import Entry
from tests.support.mesh import Desk


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    desk = Desk(tmp_path_factory.mktemp("mesh"))
    yield desk
    desk.clear()


def mounts(desk: Desk) -> list[str]:
    """Those of the run; other programs of this machine come and go."""
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(desk.home) in line]


def leftovers(desk: Desk) -> list[str]:
    """Temporary files of the supervisor and of the services."""
    folders = [desk.home / "tmp", *desk.run.glob("services/*/tmp")]
    return [str(path) for folder in folders if folder.exists() for path in folder.iterdir()]


def test_a_kill_of_the_supervisor_leaves_no_process(desk: Desk) -> None:
    process = desk.up("-c", "run.toml")
    desk.wait_for(desk.busy)
    before = desk.processes()
    assert len(before) >= 7
    process.kill()
    assert desk.wait_for(lambda: desk.processes() == [], within_s=5) < 5
    assert mounts(desk) == []


def terminate(process: subprocess.Popen[str]) -> None:
    process.terminate()


def interrupt(process: subprocess.Popen[str]) -> None:
    """As Ctrl-C does: everybody in the foreground hears it."""
    os.killpg(process.pid, signal.SIGINT)


@pytest.mark.parametrize("end", [terminate, interrupt])
def test_a_signal_ends_all_within_five_seconds_and_up_goes_on(
    desk: Desk, end: Callable[[subprocess.Popen[str]], None]
) -> None:
    process = desk.up()
    desk.wait_for(lambda: desk.pid_of("trainer-0") is not None and len(desk.processes()) >= 7)
    second = desk.call("up", "--folder", str(desk.run))
    assert second.returncode == 3
    assert "is in use" in second.stderr
    assert "envwheel stop" in second.stderr
    tail = desk.start("log", "tail", "-n", "1")
    assert tail.stdout is not None
    assert tail.stdout.readline()
    desk.wait_for(desk.busy)
    end(process)
    assert desk.wait_for(lambda: process.poll() is not None and desk.processes() == [], within_s=6) < 5.5
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert "goes on" in output
    tail.communicate(timeout=5)
    assert tail.returncode == 0
    failed = desk.call("log", "tail", "--no-follow", "--type", "WorkFailed")
    assert (failed.returncode, failed.stdout) == (0, "")
    assert mounts(desk) == []
    assert leftovers(desk) == []


def test_a_reader_of_the_progress_that_goes_away_ends_all_without_an_error(desk: Desk) -> None:
    process = desk.up()
    assert process.stdout is not None
    assert process.stdout.readline().startswith("run tiny in ")
    process.stdout.close()
    desk.wait_for(lambda: process.poll() is not None and desk.processes() == [])
    assert process.returncode == 0
    assert leftovers(desk) == []


def test_it_mends_a_killed_service_and_server_swaps_a_proposer_and_finishes(desk: Desk) -> None:
    process = desk.up()
    desk.wait_for(lambda: desk.pid_of("trainer-0") is not None)
    swapped = desk.call("swap", "proposer", "procedural-b", "--run", "tiny")
    assert swapped.returncode == 0, swapped.stderr
    for name in ("validator-0", "nats-server"):
        pid = desk.pid_of(name)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        desk.wait_for(lambda name=name, pid=pid: desk.pid_of(name) not in (None, pid))  # type: ignore[misc]
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    for level in ("log", "views", "decisions", "training"):
        assert f"{level:<10} equal" in output
    assert "valid rate" in output
    assert desk.processes() == []
    state = desk.state()["children"]
    assert state["validator-0"]["starts"] >= 2
    assert state["nats-server"]["starts"] >= 2
    assert leftovers(desk) == []


def test_the_finished_run_can_be_read_without_a_mesh(desk: Desk) -> None:
    status = desk.json("status")
    assert (status["running"], status["round"], status["rounds"]) == (False, 0, 1)
    assert status["finished"] == "all rounds are done"
    report = desk.json("report", "tiny")
    assert [row["planned"] for row in report["rounds"]] == [3]
    assert report["valid"]["of"] >= 3
    roster = desk.json("roster", "runs/tiny")
    assert [place["entry"]["name"] for place in roster] == ["procedural", "procedural-b"]
    envs = desk.json("env", "list")
    assert {env["verdict"] for env in envs} <= {"valid", "invalid"}
    shown = desk.json("env", "show", envs[0]["env"][:10])
    assert "instruction.md" in shown["files"]
    full = desk.call("env", "show", shown["env"]["env"], "--to", "models")
    assert (full.returncode, full.stderr) == (2, "envwheel: --to: models is not empty\n")
    tail = desk.call("log", "tail", "-n", "3", "--no-follow")
    assert len(tail.stdout.splitlines()) == 3
    record = desk.call("log", "show", "1")
    assert '"type": "envwheel.run_started.v1"' in record.stdout
    assert desk.json("work", "list") == []


def test_an_export_replays_and_a_changed_byte_is_named(desk: Desk) -> None:
    assert desk.call("log", "export", "--to", "run.tar").returncode == 0
    assert desk.call("replay", "run.tar", "--level", "decisions").returncode == 0
    assert desk.call("log", "verify").returncode == 0
    assert desk.call("log", "verify", "--root", "00" * 32).returncode == 1
    artifact = next(path for path in sorted(desk.run.glob("artifacts/sha256/*/*")) if path.stat().st_size > 10)
    data = artifact.read_bytes()
    artifact.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    damaged = desk.call("log", "verify")
    artifact.write_bytes(data)
    assert damaged.returncode == 1
    assert artifact.name in damaged.stdout


def test_a_run_keeps_its_science(desk: Desk) -> None:
    changed = desk.home / "changed.toml"
    changed.write_text((desk.home / "run.toml").read_text().replace("target = 4", "target = 5"))
    done = desk.call("up", "-c", "changed.toml", "--folder", "runs/tiny")
    assert done.returncode == 2
    assert "science.pool.target: 4 and 5" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give services users of their own")
def test_a_service_cannot_open_what_is_anothers(desk: Desk) -> None:
    assert desk.state()["users"] == "separate"
    uids = {name: child["uid"] for name, child in desk.state()["children"].items() if name != "nats-server"}
    assert len(set(uids.values())) == len(uids) == 5
    for role in ("proposer", "validator", "solver", "trainer", "observer"):
        others = [path for path in desk.run.glob("services/*-0/*") if not path.match(f"services/{role}-0/*")]
        closed = [*others[:20], desk.run / "nats" / "nats.conf"]
        assert len(closed) > 4
        assert opened_as(uids[f"{role}-0"], desk.run, closed) == []
    shared = sorted(desk.run.glob("artifacts/sha256/*/*"))[:3]
    assert opened_as(uids["solver-0"], desk.run, shared) == [str(path) for path in shared]


def opened_as(uid: int, run: Path, paths: list[Path]) -> list[str]:
    """Which of the paths a process can open that is started as the services of this run are."""
    child, parent = os.pipe()
    pid = os.fork()
    if pid == 0:
        found = []
        try:
            open_the_way(ctypes.CDLL(None, use_errno=True), [run])
            os.setgroups([])
            os.setresgid(GID, GID, GID)
            os.setresuid(uid, uid, uid)
            for path in paths:
                try:
                    os.close(os.open(path, os.O_RDONLY))
                except PermissionError:
                    continue
                found.append(str(path))
            os.write(parent, "\n".join(found).encode())
        finally:
            os._exit(0)
    os.close(parent)
    os.waitpid(pid, 0)
    with os.fdopen(child) as answer:
        return answer.read().split()


async def test_a_record_that_nobody_can_read_stops_the_mesh_and_is_named(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """An unknown message is an error that no restart mends."""
    desk = Desk(tmp_path_factory.mktemp("unreadable"))
    process = desk.up("-c", "run.toml")
    try:
        desk.wait_for(lambda: desk.pid_of("observer-0") is not None)
        log = await connect(desk.state()["url"], "tiny", same_body)
        await log.append([Entry("tiny.env_painted.0.-.abc", "abc", b"{}")])
        await log.close()
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 1, output
        assert "tiny.env_painted.0.-.abc" in output
        assert output.strip().count("\nenvwheel: ") == 1
        assert desk.processes() == []
    finally:
        desk.clear()
