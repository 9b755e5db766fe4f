"""The whole mesh as a user starts it: `envwheel up` on a run folder, with a model of a few thousand parameters."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.tiny_model import tiny_checkpoint
from tests.support.tree import ROOT

RUN_TOML = """
seed = 3
[science]
profile = "demo"
rounds = 1
model = "tiny"
[science.rollout]
turns_max = 2
new_tokens_max = 8
context_tokens_max = 256
[science.calibration]
mean_min = 0.0
std_min = 0.0
[science.pool]
target = 4
admit_per_round = 3
waves_max = 1
review_every_updates = 2
[science.training]
updates_per_round = 1
groups = 2
attempts = 2
waves_max = 1
[science.evaluation]
near_attempts = 0
far_attempts = 0
[deployment]
name = "tiny"
solvers = 1
ack_wait_s = 1.0
"""
PATIENCE_S = 120.0


@dataclass
class Desk:
    """A working directory with a model, a run.toml, and the commands of `envwheel` in it."""

    home: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        tiny_checkpoint().write_dir(self.home / "models" / "tiny")
        (self.home / "run.toml").write_text(RUN_TOML)
        (self.home / "tmp").mkdir()

    @property
    def run(self) -> Path:
        return self.home / "runs" / "tiny"

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.home / "tmp")}

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "services.cli", *words]
        return subprocess.run(
            command,
            cwd=self.home,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def json(self, *words: str) -> Any:
        done = self.call(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def up(self, *words: str) -> subprocess.Popen[str]:
        return self.start("up", *words)

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "services.cli", *words]
        process = subprocess.Popen(
            command,
            cwd=self.home,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def state(self) -> dict[str, Any]:
        with suppress(FileNotFoundError, json.JSONDecodeError):
            found: dict[str, Any] = json.loads((self.run / "run.json").read_text())
            return found
        return {"children": {}}

    def pid_of(self, name: str) -> int | None:
        child = self.state()["children"].get(name)
        return child["pid"] if child else None

    def processes(self) -> list[int]:
        """All processes that name our folder or live in it: supervisor, server, services, sandboxes."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    words = (entry / "cmdline").read_bytes().decode(errors="replace")
                    if str(self.run) in words or (entry / "cwd").readlink().is_relative_to(self.run):
                        found.append(int(entry.name))
        return found

    def wait_for(self, what: Callable[[], bool], *, within_s: float = PATIENCE_S) -> float:
        """Seconds until it is so."""
        began = time.monotonic()
        while not what():
            assert time.monotonic() - began < within_s, "it did not come about in time"
            time.sleep(0.05)
        return time.monotonic() - began

    def busy(self) -> bool:
        """Is a sandbox at work?"""
        return any("bwrap" in _program(pid) for pid in self.processes())

    def clear(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)


def _program(pid: int) -> str:
    with suppress(OSError):
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
    return ""
