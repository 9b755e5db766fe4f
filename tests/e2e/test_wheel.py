"""The wheel with the model that learns: equal rounds from one solver in calm and from three under SIGKILL."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.mesh import Desk

RUN_TOML = """
seed = 5
[science]
profile = "demo"
rounds = 1
[science.pool]
admit_per_round = 5
waves_max = 1
review_every_updates = 2
[science.training]
updates_per_round = 2
groups = 3
attempts = 4
waves_max = 2
[science.evaluation]
near_attempts = 0
far_attempts = 0
[deployment]
name = "tiny"
solvers = {solvers}
ack_wait_s = 2.0
"""


def desk_of(home: Path, solvers: int) -> Desk:
    home.mkdir()
    desk = Desk(home)
    (home / "run.toml").write_text(RUN_TOML.format(solvers=solvers))
    return desk


@pytest.fixture
def desks(tmp_path: Path) -> Iterator[tuple[Desk, Desk]]:
    calm, stormy = desk_of(tmp_path / "calm", 1), desk_of(tmp_path / "stormy", 3)
    yield calm, stormy
    for desk in (calm, stormy):
        desk.clear()


def bodies(desk: Desk, message: str) -> list[dict[str, Any]]:
    done = desk.call("log", "tail", str(desk.run), "--no-follow", "-n", "100000", "--type", message, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["record"]["data"]["body"] for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_one_calm_solver_and_three_under_kills_end_with_equal_rounds_and_checkpoints(desks: tuple[Desk, Desk]) -> None:
    calm, stormy = desks
    assert calm.up("-c", "run.toml").wait(timeout=240) == 0
    running = stormy.up("-c", "run.toml")
    for name in ("solver-1", "proposer-0", "validator-0", "trainer-0"):
        stormy.wait_for(stormy.busy)
        pid = stormy.pid_of(name)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    assert running.wait(timeout=240) == 0
    for message, field in (("round_closed", "digest"), ("checkpoint_published", "checkpoint")):
        one, other = ([body[field] for body in bodies(desk, message)] for desk in desks)
        assert one == other
        assert len(one) == (1 if message == "round_closed" else 3)
    reasons = {body["reason"] for body in bodies(calm, "checkpoint_published")}
    assert "update" in reasons, "no update found anything to learn from"
    assert calm.call("replay", str(calm.run)).returncode == 0
