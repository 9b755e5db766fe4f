"""What the demo's parts cost here: groups of rollouts with a sandbox each, an update, an evaluation. For ADR 0001.

Run: `python -m benchmarks.demo_costs CHECKPOINT_DIR`. CPU counts this process and every process it has reaped.
"""

import asyncio
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.learner import tasks
from schemas.messages import RolloutRequested
from schemas.outcomes import Purpose
from schemas.science import RolloutRules
from services.kernel.archive import FileEntry, pack, unpack
from services.kernel.harbor.task import read_task
from services.kernel.models.checkpoint import Checkpoint
from services.kernel.models.engine import one_thread
from services.kernel.models.trajectory import Group, Trajectory
from services.kernel.skills.compose import Task
from services.kernel.skills.harbor_files import harbor_files
from services.kernel.skills.lexicon import TRAIN
from services.kernel.workshop import open_workshop
from services.solver.handler import load_torch
from services.solver.rollout.group import Player, play
from services.trainer.learner.step import Settings, update

RULES = RolloutRules(context_tokens_max=320)


def cpu_s() -> float:
    return sum(
        used.ru_utime + used.ru_stime
        for used in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def archived(task: Task) -> bytes:
    return pack({path: FileEntry(spec.content, spec.mode == 0o755) for path, spec in harbor_files(task).items()})


async def measure(folder: Path, work: Path) -> None:
    checkpoint = Checkpoint.from_dir(folder)
    engine, template = load_torch(checkpoint.archive)
    player = Player(engine, template, RULES)
    shop = await open_workshop("host", work)
    groups: list[Group] = []
    costs: list[tuple[float, float, float, float, int]] = []
    for number, task in enumerate(tasks("costs", TRAIN, 24)):
        archive = archived(task)
        read = read_task(unpack(archive)).task
        assert read is not None
        began, wall = cpu_s(), time.perf_counter()
        image = await shop.builder.build(read)
        built, built_wall = cpu_s(), time.perf_counter()
        request = RolloutRequested(
            round=1,
            env="0" * 64,
            checkpoint_version=0,
            checkpoint=checkpoint.digest,
            purpose=Purpose.train,
            attempts=8,
            seed=number,
        )
        attempts = await play(shop, player, read, image, request)
        turns = sum(len(attempt.episode.turns) for attempt in attempts)
        costs.append((built - began, built_wall - wall, cpu_s() - built, time.perf_counter() - built_wall, turns))
        groups.append(
            Group(
                trajectories=tuple(
                    Trajectory(segments=attempt.episode.segments, reward=getattr(attempt.grade, "reward", 0.0))
                    for attempt in attempts
                )
            )
        )
    await shop.close()
    report(costs)
    began, wall = cpu_s(), time.perf_counter()
    done = update(checkpoint, None, groups[:12], Settings(minibatches=4))
    print(f"update of 12 groups: {cpu_s() - began:.2f} s CPU, {time.perf_counter() - wall:.2f} s wall", done.metrics)


def report(costs: Sequence[tuple[float, float, float, float, int]]) -> None:
    names = ("image build, CPU s", "image build, wall s", "group of 8, CPU s", "group of 8, wall s", "turns of 8")
    for index, name in enumerate(names):
        values = [cost[index] for cost in costs]
        print(f"{name}: median {statistics.median(values):.3f}, mean {statistics.mean(values):.3f}")


def main() -> None:
    one_thread()
    with tempfile.TemporaryDirectory(prefix="demo-costs-") as work:
        asyncio.run(measure(Path(sys.argv[1]), Path(work)))


if __name__ == "__main__":
    main()
