"""Known answers: each faulty task of the corpus is refused by the gate that must find it, each healthy one by none.

By itself a fault, and its healthy twin, goes through the gates that are cheaper than the one that must find it, and
through that one; healthy tasks of every shape go through all. With ENVWHEEL_CORPUS_REPEATS=100 everything goes through
all gates so many times, and every verdict must be the same each time.
"""

import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest
import pytest_asyncio

from schemas.outcomes import GateOutcome
from services.kernel.workshop import Workshop
from services.validator.gates.gate import Case, Cost, Gate
from services.validator.gates.run import GATES, GateReport, run_gates
from tests.support.corpus_building import leaky, unbuildable
from tests.support.corpus_hostile import cheatable, reachable, toothless
from tests.support.corpus_known import Known, faulty_case, twin_case
from tests.support.corpus_reading import contaminated, duplicates, malformed
from tests.support.corpus_running import flaky, unearned, unsolved
from tests.support.corpus_shapes import SHAPES, Texts, files_of
from tests.support.shop import case_of, open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")

_log = logging.getLogger(__name__)
REPEATS = int(os.environ.get("ENVWHEEL_CORPUS_REPEATS", "0"))
SOURCES = (
    malformed,
    contaminated,
    duplicates,
    unbuildable,
    leaky,
    unsolved,
    unearned,
    flaky,
    toothless,
    cheatable,
    reachable,
)
NAMES = {gate.name for gate in GATES}
CORPUS = [known for source in SOURCES for known in source()]
PASSED, FAILED = GateOutcome.passed, GateOutcome.failed


def gates_for(known: Known) -> Sequence[Gate]:
    cost = next(gate.cost for gate in GATES if gate.name == known.gate)
    if REPEATS or cost < Cost.repeating:
        return GATES if REPEATS else [gate for gate in GATES if gate.cost <= cost]
    return [gate for gate in GATES if gate.cost < cost or gate.name == known.gate]


@dataclass(frozen=True)
class Bench:
    """A workshop, and what was found in it: many faults have the same healthy twin."""

    shop: Workshop
    found: dict[tuple[object, ...], GateReport] = field(default_factory=dict)

    async def verdict(
        self, case: Callable[[], Case], gates: Sequence[Gate] = GATES, *, by_chance: bool = False
    ) -> GateReport:
        """Of the first run; every repeat must find the same, with the same evidence unless chance has a part in it."""
        asked = case()
        key = (asked.digest, tuple(asked.pool), bool(asked.grams), tuple(gate.name for gate in gates))
        if key not in self.found:
            self.found[key] = await run_gates(asked, gates)
            for _ in range(REPEATS - 1):
                again = await run_gates(case(), gates)
                assert outcomes(again) == outcomes(self.found[key]), told(again)
                assert by_chance or evidence(again) == evidence(self.found[key])
        return self.found[key]


def outcomes(report: GateReport) -> list[tuple[str, GateOutcome]]:
    return [(gate.name, found.outcome) for gate, found in report.findings]


def evidence(report: GateReport) -> list[tuple[str, bytes]]:
    return [(found.detail, found.content_bytes()) for _, found in report.findings]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    async with open_shop(tmp_path_factory.mktemp("corpus")) as shop:
        yield Bench(shop)


def told(report: GateReport) -> str:
    return "; ".join(f"{gate.name}: {found.outcome}: {found.detail}" for gate, found in report.findings)


def not_varied(report: GateReport, what: str) -> str:
    """Why the gate `not flaky` could not vary this here. Raises StopIteration where it did."""
    (content,) = (found.content for gate, found in report.findings if gate.name == "not flaky")
    return next(str(reason) for reason in content["not_varied"] if reason.startswith(what))


@pytest.mark.parametrize("known", CORPUS, ids=str)
async def test_a_fault_is_refused_by_the_gate_that_must_find_it(bench: Bench, known: Known) -> None:
    by_chance = known.gate == "not flaky"
    report = await bench.verdict(lambda: faulty_case(bench.shop, known), gates_for(known), by_chance=by_chance)
    failed = {gate.name: found.detail for gate, found in report.findings if found.outcome is FAILED}
    if known.needs and not failed:
        pytest.skip(not_varied(report, known.needs))
    assert failed.keys() <= {known.gate, *known.also}, told(report)
    assert known.says in failed[known.gate]


@pytest.mark.parametrize("known", CORPUS, ids=str)
async def test_its_healthy_twin_is_refused_by_none(bench: Bench, known: Known) -> None:
    report = await bench.verdict(lambda: twin_case(bench.shop, known), gates_for(known))
    assert {found.outcome for _, found in report.findings} == {PASSED}, told(report)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
async def test_a_healthy_task_of_every_shape_goes_through_all_gates(bench: Bench, shape: Callable[[], Texts]) -> None:
    report = await bench.verdict(lambda: case_of(bench.shop, files_of(shape())))
    assert {found.outcome for _, found in report.findings} == {PASSED}, told(report)


async def test_the_rate_of_false_alarms_is_none(bench: Bench) -> None:
    """Said with `--log-cli-level=info`; with ENVWHEEL_CORPUS_REPEATS=1 every healthy task goes through all gates."""
    makers = [(partial(twin_case, bench.shop, known), gates_for(known)) for known in CORPUS]
    makers += [(partial(case_of, bench.shop, files_of(shape())), GATES) for shape in SHAPES]
    verdicts = {make().digest: await bench.verdict(make, gates) for make, gates in makers}
    alarms = [told(report) for report in verdicts.values() if FAILED in dict(outcomes(report)).values()]
    bound = 1 - 0.05 ** (1 / len(verdicts))
    _log.info("%d false alarms among %d healthy tasks: rate below %.3f (95%%)", len(alarms), len(verdicts), bound)
    assert alarms == []


async def test_every_gate_has_faults_to_find() -> None:
    assert {known.gate for known in CORPUS} == NAMES
    assert len({str(known) for known in CORPUS}) == len(CORPUS)
