"""The benchmark of admission measures what it says: small runs of its pieces; nothing here looks at a clock."""

from pathlib import Path

import pytest

from benchmarks.admission_gates import admit_all
from benchmarks.admission_tasks import task_files, write_tasks
from benchmarks.container_costs import bubblewrap_costs
from benchmarks.figures import spread
from benchmarks.gate_times import gate_times
from services.kernel.archive import read_tree
from services.kernel.harbor.task import read_task
from services.validator.gates.gate import Cost
from services.validator.gates.run import GATES
from tests.support.shop import open_shop


@pytest.mark.parametrize("network", [False, True])
def test_tasks_are_written_alike_but_for_the_mark_and_the_network(tmp_path: Path, network: bool) -> None:
    write_tasks(tmp_path, 2, mark="here", network=network)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["task-000", "task-001"]
    files, plain = read_tree(tmp_path / "task-001"), task_files(1)
    reading = read_task(files)
    assert reading.task is not None, reading.problems
    assert files.pop("environment/files/.benchmark").content == b"here"
    assert files.keys() == plain.keys()
    assert {name for name in plain if files[name] != plain[name]} == ({"task.toml"} if network else set())


async def test_every_task_is_solved_by_its_solution_and_left_unsolved_by_no_work(tmp_path: Path) -> None:
    write_tasks(tmp_path / "tasks", 2, mark="here", network=False)
    async with open_shop(tmp_path) as shop:
        rewards = await admit_all(shop, sorted((tmp_path / "tasks").iterdir()), at_once=2)
    assert rewards == {"task-000": (1.0, 0.0), "task-001": (1.0, 0.0)}


async def test_every_gate_is_timed_on_the_task(tmp_path: Path) -> None:
    cheap = [gate for gate in GATES if gate.cost < Cost.repeating]
    async with open_shop(tmp_path) as shop:
        times = await gate_times(shop, 1, cheap)
    assert [(time.gate, time.passed, time.tasks) for time in times] == [(gate.name, 1, 1) for gate in cheap]


async def test_a_sandbox_is_started_used_and_closed_as_often_as_said(tmp_path: Path) -> None:
    costs = await bubblewrap_costs(tmp_path, rounds=2)
    assert [(cost.what, cost.wall_ms.count) for cost in costs] == [
        ("bubblewrap: start", 2),
        ("bubblewrap: exec", 10),
        ("bubblewrap: close", 2),
    ]


def test_a_spread_is_the_median_and_the_range_of_all_values() -> None:
    found = spread([4.0, 1.0, 2.0])
    assert (found.median, found.low, found.high, found.count) == (2.0, 1.0, 4.0, 3)
    assert str(found) == "2.00 (1.00 to 4.00)"
