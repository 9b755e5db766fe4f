"""envwheel's side of the admission benchmark: each task read, built, solved and graded, left alone and graded.

The last line printed is JSON. Run: `python -m benchmarks.admission_gates TASKS WORK HOLDS [--at-once N]`; HOLDS is
`open_workshop`'s mark..
"""

import argparse
import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from services.kernel.archive import digest, pack, read_tree
from services.kernel.sandbox.docker.options import DockerOptions
from services.kernel.workshop import Workshop, open_workshop
from services.validator.gates.gate import Case, Gate
from services.validator.gates.reading import WellFormed
from services.validator.gates.running import Builds, NoopFails, OraclePasses

GATES: tuple[Gate, ...] = (WellFormed(), Builds(), OraclePasses(), NoopFails())


IMAGE_LABEL = ("envwheel.benchmark", "admission")
Pair: TypeAlias = tuple[float | None, float | None]


async def admit(shop: Workshop, folder: Path) -> Pair:
    """Rewards of the reference solution and of no work."""
    archive = pack(read_tree(folder))
    case = Case(digest(archive), archive, shop)
    for gate in GATES:
        await gate.check(case)
    return case.oracle.reward if case.oracle else None, case.noop.reward if case.noop else None


async def admit_all(shop: Workshop, folders: Sequence[Path], at_once: int) -> dict[str, Pair]:
    """By task, `at_once` of them at a time."""
    rewards: dict[str, Pair] = {}
    waiting = iter(folders)

    async def hand() -> None:
        for folder in waiting:
            rewards[folder.name] = await admit(shop, folder)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(hand())
    return rewards


async def main(tasks: Sequence[Path], work: Path, holds: Path, at_once: int, docker_host: str | None) -> None:
    if docker_host is None:
        shop = await open_workshop("host", work, holds=holds)
    else:
        options = DockerOptions(host=docker_host, warm_max=0, labels=(IMAGE_LABEL,))
        shop = await open_workshop("host", work, sandbox="docker", docker=options, holds=holds)
    try:
        began_s = time.perf_counter()
        rewards = await admit_all(shop, tasks, at_once)
        inside_s = time.perf_counter() - began_s
    finally:
        await shop.close()
    print(msgspec.json.encode({"inside_s": inside_s, "rewards": rewards}).decode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("holds", type=Path)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--docker-host")
    chosen = parser.parse_args()
    asyncio.run(main(sorted(chosen.tasks.iterdir()), chosen.work, chosen.holds, chosen.at_once, chosen.docker_host))
