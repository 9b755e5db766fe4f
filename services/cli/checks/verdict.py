"""A verdict on one task as a person or a program gets it, and the words for it."""

from collections.abc import Iterable
from enum import IntEnum, StrEnum
from typing import Any

import msgspec

from schemas.outcomes import GateOutcome
from services.validator.gates.gate import Finding, Gate


class Word(StrEnum):
    valid = "valid"
    invalid = "invalid"
    unchecked = "could not check"
    """The machine was in the way, or the task needs what this installation lacks: nothing is said about the task."""


class Code(IntEnum):
    """Exit codes of `env check` and `env recheck`."""

    valid = 0
    invalid = 1
    unchecked = 2


class GateRecord(msgspec.Struct, frozen=True, kw_only=True):
    gate: str
    outcome: GateOutcome
    detail: str = ""
    wall_s: float | None = None
    content: dict[str, Any] = {}
    """Evidence that follows from the task alone."""
    observed: dict[str, Any] = {}
    """What was seen on the way: output, times."""


class TaskVerdict(msgspec.Struct, frozen=True, kw_only=True):
    task: str
    path: str
    env: str | None
    """Digest of the task's canonical archive; None where there is none."""
    verdict: Word
    reason: str = ""
    """Why it could not be checked, and what to do."""
    notes: tuple[str, ...] = ()
    gates: tuple[GateRecord, ...] = ()
    wall_s: float = 0.0
    kept: bool = False
    """Said before, about the same bytes under the same settings, and not checked again."""

    @property
    def failed(self) -> GateRecord | None:
        return next((gate for gate in self.gates if gate.outcome is GateOutcome.failed), None)

    def without_evidence(self) -> "TaskVerdict":
        """For a list of many: what a summary needs."""
        gates = (msgspec.structs.replace(gate, content={}, observed={}) for gate in self.gates)
        return msgspec.structs.replace(self, gates=tuple(gates))

    def line(self) -> str:
        """Why, in one line."""
        if self.verdict is Word.unchecked:
            return self.reason
        return f"{self.failed.gate}: {self.failed.detail}" if self.failed else ""


def record_of(gate: Gate, finding: Finding) -> GateRecord:
    wall_s = finding.observed.get("wall_s")
    return GateRecord(
        gate=gate.name,
        outcome=finding.outcome,
        detail=finding.detail,
        wall_s=wall_s if isinstance(wall_s, float) else None,
        content=dict(finding.content),
        observed=dict(finding.observed),
    )


def exit_code(verdicts: Iterable[Word]) -> Code:
    """An invalid task outweighs one that could not be checked."""
    words = set(verdicts)
    if Word.invalid in words:
        return Code.invalid
    return Code.unchecked if Word.unchecked in words else Code.valid
