"""What each gate costs on healthy tasks, one gate and one task at a time."""

import resource
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.admission_tasks import task_files
from benchmarks.figures import Spread, spread
from schemas.outcomes import GateOutcome
from services.cli.heldout import held_out
from services.kernel.archive import digest, pack
from services.kernel.heldout.grams import read_grams
from services.kernel.workshop import Workshop, open_workshop
from services.validator.gates.gate import Case, Gate
from services.validator.gates.run import GATES


class GateTime(msgspec.Struct, frozen=True):
    gate: str
    cost: str
    passed: int
    tasks: int
    wall_ms: Spread
    cpu_ms: Spread
    """Of this process and of all that it waited for."""


async def measure(work: Path, tasks: int) -> list[GateTime]:
    shop = await open_workshop("host", work)
    try:
        return await gate_times(shop, tasks)
    finally:
        await shop.close()


async def gate_times(shop: Workshop, tasks: int, gates: Sequence[Gate] = GATES) -> list[GateTime]:
    """Every gate on every task, in order, with nothing cached. A gate whose forerunners failed is not counted."""
    grams = read_grams(held_out().grams)
    costs: dict[str, list[tuple[float, float, bool]]] = defaultdict(list)
    pool: dict[str, str] = {}
    for number in range(tasks):
        archive = pack(task_files(number))
        case = Case(digest(archive), archive, shop, grams=grams, pool=dict(pool))
        for gate in gates:
            if not case.has(gate.needs):
                break
            cpu_s, began_s = _cpu_s(), time.perf_counter()
            finding = await gate.check(case)
            wall_s = time.perf_counter() - began_s
            costs[gate.name].append((wall_s, _cpu_s() - cpu_s, finding.outcome is GateOutcome.passed))
        if case.sketch is not None:
            pool[case.digest] = case.sketch
    return [
        GateTime(
            gate=gate.name,
            cost=gate.cost.name,
            passed=sum(good for _, _, good in costs[gate.name]),
            tasks=len(costs[gate.name]),
            wall_ms=spread(1000 * wall_s for wall_s, _, _ in costs[gate.name]),
            cpu_ms=spread(1000 * cpu_s for _, cpu_s, _ in costs[gate.name]),
        )
        for gate in gates
        if costs[gate.name]
    ]


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
