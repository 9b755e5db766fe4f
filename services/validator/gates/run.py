"""The gates in order, cheapest first, stopping at the first failure unless all are wanted."""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from schemas.outcomes import GateOutcome, Verdict
from services.kernel.meter import Watch, spending
from services.validator.gates.bites import VerifierBites
from services.validator.gates.cheating import ResistsCheating
from services.validator.gates.decontaminated import Decontaminated
from services.validator.gates.flaky import NotFlaky
from services.validator.gates.gate import Case, Cost, Finding, Gate
from services.validator.gates.isolation import IsolatedVerifier
from services.validator.gates.leak import NoLeak
from services.validator.gates.likeness import NotDuplicate
from services.validator.gates.reading import WellFormed
from services.validator.gates.running import Builds, NoopFails, OraclePasses

GATES: tuple[Gate, ...] = (
    WellFormed(),
    Decontaminated(),
    NotDuplicate(),
    Builds(),
    NoLeak(),
    OraclePasses(),
    NoopFails(),
    NotFlaky(),
    VerifierBites(),
    ResistsCheating(),
    IsolatedVerifier(),
)
DRAFT_GATES: tuple[Gate, ...] = tuple(gate for gate in GATES if gate.cost is not Cost.repeating)
"""What a draft goes through before it is submitted: all but the costly repeats."""

Progress = Callable[[Gate, Finding], None]


@dataclass(frozen=True)
class GateReport:
    findings: tuple[tuple[Gate, Finding], ...]
    """In the order of the gates. `observed` holds `wall_s`, and `cpu_s` of the programs run in sandboxes."""

    @property
    def verdict(self) -> Verdict:
        bad = any(finding.outcome is GateOutcome.failed for _, finding in self.findings)
        return Verdict.invalid if bad else Verdict.valid


async def run_gates(
    case: Case,
    gates: Sequence[Gate] = GATES,
    *,
    all_gates: bool = False,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> GateReport:
    """Send a case through: the gates of one cost class together, at most `jobs` at once (default: the cores of this
    process), then the next class. What is found does not depend on `jobs`: a class that has begun is run to its end.

    With `all_gates` only those are skipped whose forerunner made nothing to go on with. `progress` hears every
    finding, in the order of the gates.

    Raises:
        SandboxError: infrastructure; nothing is said about the environment.
        ValueError: `gates` leave out one that others build on.
    """
    slots = asyncio.Semaphore(jobs or len(os.sched_getaffinity(0)))
    findings: list[tuple[Gate, Finding]] = []
    for _, stage in groupby(sorted(gates, key=lambda gate: gate.cost), key=lambda gate: gate.cost):
        waiting = list(stage)
        while waiting:
            bad = any(finding.outcome is GateOutcome.failed for _, finding in findings)
            ready = _leading(waiting, case) if all_gates or not bad else []
            if ready:
                findings += zip(ready, await _together(ready, case, slots), strict=True)
            elif bad:
                ready = waiting[:1]
                findings.append((waiting[0], Finding(GateOutcome.skipped, "an earlier gate failed")))
            else:
                raise ValueError(
                    f"{waiting[0].name!r} needs {', '.join(waiting[0].needs)}: no gate before it made that"
                )
            waiting = waiting[len(ready) :]
            if progress is not None:
                for gate, finding in findings[-len(ready) :]:
                    progress(gate, finding)
    return GateReport(tuple(findings))


def _leading(waiting: Sequence[Gate], case: Case) -> list[Gate]:
    """The gates at the head that have what they need: one that waits for its neighbour comes after it."""
    unready = next((place for place, gate in enumerate(waiting) if not case.has(gate.needs)), len(waiting))
    return list(waiting[:unready])


async def _together(gates: Sequence[Gate], case: Case, slots: asyncio.Semaphore) -> list[Finding]:
    async def one(gate: Gate) -> Finding:
        async with slots:
            watch = Watch()
            with spending() as spent:
                finding = await gate.check(case)
            costs = {"wall_s": round(watch.wall_s(), 3), "cpu_s": round(spent.cpu_s, 3)}
            return replace(finding, observed={**finding.observed, **costs})

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(gate)) for gate in gates]
    except BaseExceptionGroup as failures:
        # The first is the cause; the others are told of its cancellation, or met the same trouble.
        raise failures.exceptions[0] from failures
    return [task.result() for task in tasks]
