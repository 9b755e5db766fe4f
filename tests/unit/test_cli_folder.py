"""A run folder has one user at a time, and everybody can tell whether that one runs the mesh or only reads."""

import argparse
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.cli.commands.wheel import stop
from services.cli.folder import RunFolder, State
from services.cli.outcome import CliError
from services.kernel.runfile import Deployment, RunFile
from tests.support.tree import ROOT

HOLD = """
import sys, time
from pathlib import Path
from services.cli.folder import RunFolder
with RunFolder(Path(sys.argv[1])).held(sys.argv[2]):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.create(RunFile(deployment=Deployment(name="run")))
    return made


def test_a_folder_that_no_table_can_lie_in_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="backslash"):
        RunFolder(tmp_path / "a\\b").create(RunFile(deployment=Deployment(name="run")))
    assert list(tmp_path.iterdir()) == []


@contextmanager
def holder_of(folder: RunFolder, purpose: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(folder.root), purpose]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(ROOT)})
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def an_earlier_mesh_was(folder: RunFolder, pid: int) -> None:
    folder.tell(State(pid=pid, url="nats://127.0.0.1:1", started_ns=1, users="same: test", base="host", children={}))


@pytest.fixture
def stranger(folder: RunFolder) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the pid which an earlier mesh of this folder had."""
    process = subprocess.Popen(["sleep", "60"])
    an_earlier_mesh_was(folder, process.pid)
    yield process
    process.kill()
    process.wait()


async def test_who_reads_a_run_at_rest_is_no_mesh_and_stop_signals_nobody(
    folder: RunFolder, stranger: subprocess.Popen[bytes]
) -> None:
    with holder_of(folder, "read") as reader:
        assert not folder.is_running()
        assert await stop(argparse.Namespace(run=str(folder.root), finish=False)) == 0
        assert stranger.poll() is None
        assert reader.poll() is None


async def test_stop_ends_the_process_that_holds_the_folder_whatever_an_earlier_one_was(
    folder: RunFolder, stranger: subprocess.Popen[bytes]
) -> None:
    with holder_of(folder, "start") as mesh:
        assert folder.is_running()
        assert await stop(argparse.Namespace(run=str(folder.root), finish=False)) == 0
        assert mesh.wait(5) == -signal.SIGTERM
        assert stranger.poll() is None


@pytest.mark.parametrize(
    ("purpose", "said"),
    [("read", "process {pid} reads .*: try again"), ("start", "in use .process {pid}.*envwheel stop")],
)
def test_a_second_user_is_told_who_has_the_folder_and_what_to_do(folder: RunFolder, purpose: str, said: str) -> None:
    an_earlier_mesh_was(folder, 1)
    with holder_of(folder, purpose) as process, pytest.raises(CliError, match=said.format(pid=process.pid)):
        folder.held("start").__enter__()
    with folder.held("start"):
        assert folder.is_running()
    assert folder.holder() is None
