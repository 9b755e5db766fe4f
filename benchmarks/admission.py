"""How fast is admission: oracle and no-op on the same tasks by envwheel and by Harbor, gate by gate, and the sandboxes.

Run from the repository: `python -m benchmarks.admission`, all in five to six minutes; `--help` tells the rest. Both
sides have the same tasks, backend and number at once, in one run, turn by turn; every pass starts with empty caches,
and counts only if both give every task the same rewards. docs/benchmarks.md keeps the figures.
"""

import argparse
import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.admission_sides import Engine, Run, find_harbor, remove_images, run_envwheel, run_harbor
from benchmarks.admission_tasks import write_tasks
from benchmarks.container_costs import Cost, bubblewrap_costs, docker_backend_costs, docker_command_costs
from benchmarks.figures import Machine, Spread, machine, spread, table
from benchmarks.gate_times import GateTime, measure
from services.kernel.harbor.recipe import BASE_NAMES

PARTS = ("bubblewrap", "docker", "gates", "sandboxes")


class Side(msgspec.Struct, frozen=True):
    """Over the repeats."""

    tasks_a_minute: Spread
    """From the first task's start to the last one's end."""
    tasks_a_minute_in_all: Spread
    """Of the whole command, its start included."""
    cpu_s_a_task: Spread


class Comparison(msgspec.Struct, frozen=True):
    backend: str
    tasks: int
    at_once: int
    envwheel: Side
    harbor: Side
    ratio: Spread
    """envwheel's tasks a minute over Harbor's, pass by pass."""
    ratio_in_all: Spread


class Report(msgspec.Struct):
    machine: Machine
    comparisons: list[Comparison] = []
    gates: list[GateTime] = []
    sandboxes: list[Cost] = []
    left_out: dict[str, str] = {}
    load_after: float = 0.0


def compare(folder: Path, *, tasks: int, repeats: int, at_once: int, engine: Engine | None) -> Comparison:
    """Raises RuntimeError when a side fails, or the two disagree about a reward."""
    harbor, holds = find_harbor(), folder / "holds"

    def one_pass(name: str, count: int) -> tuple[Run, Run]:
        room = folder / name
        for side in ("envwheel", "harbor"):
            # Harbor's Docker environment enforces no-network with a sidecar image of a registry; so it may have one.
            mark = f"{os.getpid()}-{name}-{side}"
            write_tasks(room / side / "tasks", count, mark=mark, network=engine is not None)
        own, their = room / "envwheel", room / "harbor"
        ours = run_envwheel(own / "tasks", own / "work", holds, at_once=at_once, engine=engine)
        theirs = run_harbor(harbor, their / "tasks", their / "jobs", at_once=at_once, engine=engine)
        _check_alike(ours, theirs, count)
        return ours, theirs

    try:
        one_pass("warm-up", 2)
        ours, theirs = zip(*(one_pass(str(number), tasks) for number in range(repeats)), strict=True)
    finally:
        if engine is not None:
            remove_images(engine)
    return Comparison(
        backend="docker" if engine else "bubblewrap",
        tasks=tasks,
        at_once=at_once,
        envwheel=_side(ours),
        harbor=_side(theirs),
        ratio=spread(b.inside_s / a.inside_s for a, b in zip(ours, theirs, strict=True)),
        ratio_in_all=spread(b.wall_s / a.wall_s for a, b in zip(ours, theirs, strict=True)),
    )


def _check_alike(ours: Run, theirs: Run, tasks: int) -> None:
    if ours.rewards != theirs.rewards:
        names = sorted({*ours.rewards, *theirs.rewards})
        differ = [(n, ours.rewards.get(n), theirs.rewards.get(n)) for n in names]
        raise RuntimeError(f"other rewards (envwheel, Harbor): {[row for row in differ if row[1] != row[2]]}")
    solved = sum(oracle == 1.0 for oracle, _ in ours.rewards.values())
    if solved != tasks:
        raise RuntimeError(f"{tasks} tasks were given, {solved} solved: {ours.rewards}")


def _side(runs: Sequence[Run]) -> Side:
    count = len(runs[0].rewards)
    return Side(
        tasks_a_minute=spread(60 * count / run.inside_s for run in runs),
        tasks_a_minute_in_all=spread(60 * count / run.wall_s for run in runs),
        cpu_s_a_task=spread(run.cpu_s / count for run in runs),
    )


def show(report: Report) -> None:
    about = report.machine
    print(f"{about.date}, {about.cores} cores ({about.cpu}), Linux {about.kernel}, load {about.load_before:.1f} before")
    for each in report.comparisons:
        print(f"\nOracle and no-op of {each.tasks} tasks on {each.backend}, {each.at_once} at once: median (range)\n")
        rows = [
            (label, getattr(each.envwheel, name), getattr(each.harbor, name), ratio)
            for label, name, ratio in (
                ("tasks a minute", "tasks_a_minute", each.ratio),
                ("tasks a minute, start of the command included", "tasks_a_minute_in_all", each.ratio_in_all),
                ("CPU s a task, the engine's not included", "cpu_s_a_task", ""),
            )
        ]
        print(table(("", "envwheel", "Harbor 0.26", "ratio"), rows))
    if report.gates:
        print("\nOne gate at a time\n")
        times = [
            (gate.gate, gate.cost, f"{gate.passed}/{gate.tasks}", gate.wall_ms, gate.cpu_ms) for gate in report.gates
        ]
        print(table(("gate", "cost class", "passed", "wall ms", "CPU ms"), times))
    if report.sandboxes:
        print("\nOne sandbox at a time\n")
        print(table(("", "wall ms"), [(cost.what, cost.wall_ms) for cost in report.sandboxes]))
    for part, reason in report.left_out.items():
        print(f"\nleft out: {part}: {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--gate-tasks", type=int, default=5, help="tasks that go through all gates (default 5)")
    parser.add_argument("--repeats", type=int, default=5, help="passes of each side on bubblewrap (default 5)")
    parser.add_argument("--docker-repeats", type=int, default=2, help="passes of each side on Docker (default 2)")
    parser.add_argument("--at-once", type=int, default=4, help="at once on both sides (default 4, as is Harbor's)")
    parser.add_argument("--only", choices=PARTS, action="append", help="one part; may be given again")
    parser.add_argument("--docker-host", default=os.environ.get("ENVWHEEL_DOCKER_HOST"), help="unix:///path/to/socket")
    parser.add_argument("--docker-config", type=Path, help="folder whose cli-plugins/ holds docker-compose")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")
    chosen = parser.parse_args()
    report = Report(machine())
    engine = Engine(chosen.docker_host, chosen.docker_config) if chosen.docker_host else None
    with tempfile.TemporaryDirectory(prefix="admission-") as name:
        for part in chosen.only or PARTS:
            if part == "docker" and engine is None:
                report.left_out[part] = "no engine: name one with --docker-host"
                continue
            folder = Path(name, part)
            folder.mkdir()
            _measure(report, part, folder, chosen, engine)
    report.load_after = os.getloadavg()[0]
    show(report)
    if chosen.json is not None:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")


def _measure(report: Report, part: str, folder: Path, chosen: argparse.Namespace, engine: Engine | None) -> None:
    match part:
        case "gates":
            report.gates = asyncio.run(measure(folder / "work", chosen.gate_tasks))
        case "sandboxes":
            report.sandboxes = asyncio.run(bubblewrap_costs(folder))
            if engine is not None:
                report.sandboxes += asyncio.run(docker_backend_costs(folder, engine.host, BASE_NAMES[0]))
                report.sandboxes += docker_command_costs(engine.host, BASE_NAMES[0])
        case _:
            on = engine if part == "docker" else None
            repeats = chosen.docker_repeats if on else chosen.repeats
            compared = compare(folder, tasks=chosen.tasks, repeats=repeats, at_once=chosen.at_once, engine=on)
            report.comparisons.append(compared)


if __name__ == "__main__":
    main()
