"""Environments through the gates: all of them or some, and what was found. Tasks with a fault that running shows."""

from collections.abc import Mapping, Sequence

from schemas.outcomes import GateOutcome, Verdict
from schemas.science import GateRules
from services.kernel.workshop import Workshop
from services.validator.gates.gate import Case, Finding, Gate
from services.validator.gates.reading import WellFormed
from services.validator.gates.run import GATES, GateReport, run_gates
from services.validator.gates.running import Builds, NoopFails, OraclePasses
from tests.support.harbor_tasks import TEST_SH, greeting
from tests.support.shop import Files, case_of

Changes = Mapping[str, str | bytes | None]

SOLVE = "#!/bin/bash\nset -euo pipefail\ncd /app\n"
TWO_TESTS = """#!/bin/bash
cd /app
[ "$(cat hello.txt 2>/dev/null)" = hi ] && a=passed || a=failed
[ -e more.txt ] && b=passed || b=failed
printf '{"results":{"tests":[{"name":"a","status":"%s"},{"name":"b","status":"%s"}]}}' $a $b > /logs/verifier/ctrf.json
case $a$b in passedpassed) r=1;; failedfailed) r=0;; *) r=0.5;; esac
echo $r > /logs/verifier/reward.txt
"""
HALF_DONE = {"tests/test.sh": TWO_TESTS, "solution/solve.sh": SOLVE + "echo hi > hello.txt; touch more.txt\n"}


def only_where(condition: str) -> str:
    """A verifier whose test also needs the surroundings to be so."""
    return TEST_SH.replace("if pass; then", f"if pass && {condition}; then")


def outcomes(report: GateReport) -> dict[str, GateOutcome]:
    return {gate.name: finding.outcome for gate, finding in report.findings}


def finding(report: GateReport, name: str) -> Finding:
    return next(found for gate, found in report.findings if gate.name == name)


async def stopped_at(shop: Workshop, files: Files | bytes, gate: str, **more: object) -> Finding:
    """What the gate found that fails; those of cheaper classes have passed, those of dearer ones were not run."""
    report = await run_gates(case_of(shop, files, **more))
    cost = next(each.cost for each in GATES if each.name == gate)
    found = outcomes(report)
    assert {found[each.name] for each in GATES if each.cost < cost} <= {GateOutcome.passed}
    assert found[gate] is GateOutcome.failed
    assert {found[each.name] for each in GATES if each.cost > cost} <= {GateOutcome.skipped}
    assert report.verdict is Verdict.invalid
    return finding(report, gate)


async def solved(shop: Workshop, changes: Changes, **rules: float) -> Case:
    """A case of `greeting` whose solution has been seen to earn 1, and whose no-op has been seen to fail."""
    case = case_of(shop, greeting(changes), rules=GateRules(**rules))  # type: ignore[arg-type] # numbers by name
    ready: Sequence[Gate] = (WellFormed(), Builds(), OraclePasses(), NoopFails())
    for gate in ready:
        found = await gate.check(case)
        assert found.outcome is GateOutcome.passed, found
    return case
