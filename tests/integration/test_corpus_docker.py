"""Known answers in containers: one fault of every gate that runs anything, and healthy tasks, as in `test_corpus`."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from schemas.outcomes import GateOutcome
from services.validator.gates.gate import Cost
from services.validator.gates.isolation import IsolatedVerifier
from services.validator.gates.run import GATES
from tests.integration.test_corpus import CORPUS, Bench, gates_for, told
from tests.support.corpus_known import Known, faulty_case
from tests.support.corpus_shapes import apart, files_of, tally
from tests.support.shop import case_of, open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHOSEN = {
    "builds: a step that fails",
    "no leak: the solution in a git object",
    "oracle passes: it stops half-way",
    "no-op fails: half of it is done",
    "not flaky: the time zone",
    "verifier bites: it looks at one output of three",
    "resists cheating: it sources the agent's start-up file",
    "isolated verifier: modules of python come from the agent's folder",
}
FAULTS = [known for known in CORPUS if str(known) in CHOSEN]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    async with open_shop(tmp_path_factory.mktemp("containers"), "docker") as shop:
        yield Bench(shop)


@pytest.mark.parametrize("known", FAULTS, ids=str)
async def test_a_fault_is_refused_in_containers_too(bench: Bench, known: Known) -> None:
    report = await bench.verdict(lambda: faulty_case(bench.shop, known), gates_for(known))
    failed = {gate.name: found.detail for gate, found in report.findings if found.outcome is GateOutcome.failed}
    assert failed.keys() <= {known.gate, *known.also}, told(report)
    assert known.says in failed[known.gate]


async def test_a_healthy_task_is_refused_by_no_gate_in_containers(bench: Bench) -> None:
    report = await bench.verdict(lambda: case_of(bench.shop, files_of(tally())))
    assert {found.outcome for _, found in report.findings} == {GateOutcome.passed}, told(report)


async def test_a_separate_verifier_is_one_in_containers_too(bench: Bench) -> None:
    gates = [gate for gate in GATES if gate.cost < Cost.repeating or isinstance(gate, IsolatedVerifier)]
    report = await bench.verdict(lambda: case_of(bench.shop, files_of(apart())), gates)
    assert {found.outcome for _, found in report.findings} == {GateOutcome.passed}, told(report)


async def test_the_faults_are_those_of_the_corpus(bench: Bench) -> None:
    assert {str(known) for known in FAULTS} == CHOSEN
