"""envwheel's side of the admission benchmark: each task read, built, solved and graded, left alone and graded.

The last line printed is JSON. Run: `python -m benchmarks.admission_gates TASKS WORK [--at-once N]`.
"""

import argparse
import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from services.kernel.archive import digest, pack, read_tree
from services.kernel.workshop import Workshop, open_workshop
from services.validator.gates.gate import Case, Gate
from services.validator.gates.reading import WellFormed
from services.validator.gates.running import Builds, NoopFails, OraclePasses

GATES: tuple[Gate, ...] = (WellFormed(), Builds(), OraclePasses(), NoopFails())


async def admit(shop: Workshop, folder: Path) -> tuple[float | None, float | None]:
    """Rewards of the reference solution and of no work."""
    archive = pack(read_tree(folder))
    case = Case(digest(archive), archive, shop)
    for gate in GATES:
        await gate.check(case)
    return tuple(grade.reward if grade else None for grade in (case.oracle, case.noop))  # type: ignore[return-value] # two


async def main(tasks: Sequence[Path], work: Path, at_once: int) -> None:
    shop = await open_workshop("host", work)
    rewards: dict[str, tuple[float | None, float | None]] = {}
    folders = iter(tasks)

    async def hand() -> None:
        for folder in folders:
            rewards[folder.name] = await admit(shop, folder)

    began_s = time.perf_counter()
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(hand())
        inside_s = time.perf_counter() - began_s
    finally:
        await shop.close()
    print(msgspec.json.encode({"inside_s": inside_s, "rewards": rewards}).decode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--at-once", type=int, default=2)
    chosen = parser.parse_args()
    asyncio.run(main(sorted(chosen.tasks.iterdir()), chosen.work, chosen.at_once))
