"""`envwheel env check` as a process: it ends clean however it is ended, goes on where it was, and watches."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.kernel.archive import write_tree
from tests.support.harbor_tasks import greeting
from tests.support.tree import ROOT

PATIENCE_S = 120.0
LAZY = {"solution/solve.sh": "#!/bin/bash\n:\n"}
ENDLESS = {"solution/solve.sh": "#!/bin/bash\nsleep 600\n"}
QUICK = ("--set", "gates.flaky_repeats=1", "--set", "gates.mutants_max=1")


class Author:
    """Starts the command over tasks and a cache of its own, and reads what it says line by line."""

    def __init__(self, home: Path, cache: Path) -> None:
        self.home, self.cache = home, cache
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "services.cli", "env", "check", *words, *QUICK]
        process = subprocess.Popen(
            command,
            cwd=self.home,
            env={**os.environ, "PYTHONPATH": str(ROOT), "ENVWHEEL_CACHE": str(self.cache)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def sandboxes(self) -> list[Path]:
        """Folders of sandboxes that are open."""
        return list((self.cache / "workshop" / "sandboxes").glob("owner-*/[0-9]*"))

    def left_over(self) -> list[Path]:
        return list((self.cache / "workshop" / "sandboxes").glob("owner-*"))

    def processes(self) -> list[int]:
        """Everybody in the sessions that were started."""
        sessions = {process.pid for process in self.started}
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z" and int(fields[3]) in sessions:
                found.append(int(stat.parent.name))
        return found

    def wait_for_sandbox(self) -> None:
        """Until the endless solution is running: a sandbox stays open."""
        until = time.monotonic() + PATIENCE_S
        while not self._endless():
            assert time.monotonic() < until, "no sandbox came about"
            time.sleep(0.05)

    def _endless(self) -> list[str]:
        found = []
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if line.read_bytes() == b"sleep\x00600\x00":
                    found.append(str(line))
            except OSError:
                continue
        return found


def read_until(process: subprocess.Popen[str], beginning: str) -> list[str]:
    """Lines up to the one that begins so."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith(beginning):
            return lines
    raise AssertionError(f"it ended without {beginning!r}: {lines}")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def author(tmp_path: Path, cache: Path) -> Iterator[Author]:
    author = Author(tmp_path, cache)
    yield author
    for process in author.started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_ctrl_c_in_the_middle_of_many_leaves_nothing_and_the_next_call_goes_on(author: Author) -> None:
    write_tree(greeting(LAZY), author.home / "set/a-lazy")
    write_tree(greeting(ENDLESS), author.home / "set/b-endless")
    process = author.start("set")
    read_until(process, "invalid ")
    author.wait_for_sandbox()
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, output
    assert "1 of 2 are not checked yet: the same command goes on there" in output
    assert (author.processes(), author.left_over()) == ([], [])
    (author.home / "set/b-endless/solution/solve.sh").write_text("#!/bin/bash\necho no longer endless\n")
    process = author.start("set")
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, output
    assert re.search(r"^invalid +kept +a-lazy: oracle passes", output, re.MULTILINE)
    assert re.search(r"^invalid +[0-9.]+ s  b-endless: oracle passes", output, re.MULTILINE)


def test_sigterm_ends_one_check_and_all_that_it_started(author: Author) -> None:
    write_tree(greeting(ENDLESS), author.home / "endless")
    process = author.start("endless")
    author.wait_for_sandbox()
    process.terminate()
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM
    assert output.splitlines()[-1] == "envwheel: terminated"
    assert (author.processes(), author.left_over()) == ([], [])


def test_what_a_killed_check_left_goes_with_the_next_one(author: Author) -> None:
    write_tree(greeting(ENDLESS), author.home / "endless")
    write_tree(greeting(LAZY), author.home / "lazy")
    process = author.start("endless")
    author.wait_for_sandbox()
    process.kill()
    process.communicate()
    until = time.monotonic() + PATIENCE_S
    while author.processes():
        assert time.monotonic() < until, "its sandboxes outlive it"
        time.sleep(0.05)
    assert author.left_over() != []
    done = author.start("lazy")
    output, _ = done.communicate(timeout=PATIENCE_S)
    assert done.returncode == 1, output
    assert author.left_over() == []


def test_watch_checks_again_after_a_change_and_ctrl_c_ends_it_with_the_last_verdict(author: Author) -> None:
    write_tree(greeting(), author.home / "task")
    process = author.start("task", "--watch")
    read_until(process, "valid: ")
    read_until(process, "watching for changes")
    (author.home / "task/solution/solve.sh").write_text("#!/bin/bash\n:\n")
    lines = read_until(process, "invalid: ")
    assert any(line.startswith("oracle passes") and " failed " in line for line in lines)
    read_until(process, "watching for changes")
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, output
    assert (author.processes(), author.left_over()) == ([], [])
