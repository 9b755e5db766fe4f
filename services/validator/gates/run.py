"""The gates in order, cheapest first, stopping at the first failure unless all are wanted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from schemas.outcomes import GateOutcome, Verdict
from services.validator.gates.gate import Case, Finding, Gate
from services.validator.gates.likeness import NotDuplicate
from services.validator.gates.reading import Decontaminated, WellFormed
from services.validator.gates.running import Builds, NoopFails, NotFlaky, OraclePasses

GATES: tuple[Gate, ...] = (
    WellFormed(),
    Decontaminated(),
    NotDuplicate(),
    Builds(),
    OraclePasses(),
    NoopFails(),
    NotFlaky(),
)
DRAFT_GATES: tuple[Gate, ...] = tuple(gate for gate in GATES if not isinstance(gate, NotFlaky))
"""What a draft goes through before it is submitted: all but the costly repeats."""


@dataclass(frozen=True)
class GateReport:
    findings: tuple[tuple[Gate, Finding], ...]

    @property
    def verdict(self) -> Verdict:
        bad = any(finding.outcome is GateOutcome.failed for _, finding in self.findings)
        return Verdict.invalid if bad else Verdict.valid


async def run_gates(
    case: Case,
    gates: Sequence[Gate] = GATES,
    *,
    all_gates: bool = False,
    progress: Callable[[Gate, Finding], None] | None = None,
) -> GateReport:
    """Send a case through. With `all_gates` only those are skipped whose forerunner made nothing to go on with.

    Raises:
        SandboxError: infrastructure; nothing is said about the environment.
    """
    findings: list[tuple[Gate, Finding]] = []
    for gate in sorted(gates, key=lambda gate: gate.cost):
        bad = any(finding.outcome is GateOutcome.failed for _, finding in findings)
        if bad and not (all_gates and _has_what_it_needs(gate, case)):
            finding = Finding(GateOutcome.skipped, "an earlier gate failed")
        else:
            finding = await gate.check(case)
        findings.append((gate, finding))
        if progress is not None:
            progress(gate, finding)
    return GateReport(tuple(findings))


def _has_what_it_needs(gate: Gate, case: Case) -> bool:
    if isinstance(gate, NotDuplicate):
        return bool(case.files)
    if isinstance(gate, Decontaminated | Builds):
        return case.task is not None
    if isinstance(gate, NotFlaky):
        return case.oracle is not None and case.noop is not None
    return case.image is not None
