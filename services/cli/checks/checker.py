"""One task through the gates, to a verdict. Trouble of the machine is its own word, never `invalid`."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from schemas.outcomes import GateOutcome, Verdict
from services.cli.checks.target import Target
from services.cli.checks.terms import Terms
from services.cli.checks.verdict import GateRecord, TaskVerdict, Word, record_of
from services.kernel.archive import ArchiveError, TreeUnreadable, digest
from services.kernel.errors import KernelError
from services.kernel.harbor.build import UNKNOWN_BASE
from services.kernel.harbor.recipe import UnavailableError
from services.kernel.harbor.task import read_task
from services.kernel.sandbox.protocol import SandboxError
from services.kernel.workshop import Workshop
from services.validator.gates.gate import Finding, Gate
from services.validator.gates.run import GATES, GateReport, run_gates

Progress = Callable[[GateRecord], None]
TROUBLE = (SandboxError, KernelError, OSError, UnavailableError)


@dataclass(frozen=True)
class Checker:
    workshop: Workshop
    terms: Terms
    jobs: int | None = None
    """Gates of one task at once; None: as many as there are cores."""
    hint: str = ""
    """What else may help where FROM names an image that is not here."""

    async def check(self, target: Target, progress: Progress | None = None) -> TaskVerdict:
        began = time.monotonic()
        try:
            archive = await asyncio.to_thread(target.archive)
        except (TreeUnreadable, OSError) as error:
            return _verdict(target, None, began, Word.unchecked, reason=f"cannot be read: {error}")
        except ArchiveError as error:
            gates = tuple(_refused(gate, str(error)) for gate in GATES)
            if progress is not None:
                for gate in gates:
                    progress(gate)
            return _verdict(target, None, began, Word.invalid, gates=gates)
        return await self.check_archive(target, archive, progress)

    async def check_archive(self, target: Target, archive: bytes, progress: Progress | None = None) -> TaskVerdict:
        began = time.monotonic()
        env = digest(archive)
        records: list[GateRecord] = []

        def take(gate: Gate, finding: Finding) -> None:
            records.append(record_of(gate, finding))
            if progress is not None:
                progress(records[-1])

        case = self.terms.case(archive, self.workshop)
        try:
            report = await run_gates(case, all_gates=self.terms.all_gates, jobs=self.jobs, progress=take)
        except TROUBLE as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            return _verdict(target, env, began, Word.unchecked, reason=reason, gates=tuple(records))
        word, reason = _word(report)
        if word is Word.unchecked and reason.startswith(UNKNOWN_BASE):
            reason = f"{reason}; {self.hint}" if self.hint else reason
        notes = tuple(f"{note.where}: {note.message}" for note in read_task(case.files).notes)
        return _verdict(target, env, began, word, reason=reason, notes=notes, gates=tuple(records))


def _word(report: GateReport) -> tuple[Word, str]:
    """A task that only asks for what this installation lacks is not at fault."""
    if report.verdict is Verdict.valid:
        return Word.valid, ""
    failed = [finding for _, finding in report.findings if finding.outcome is GateOutcome.failed]
    lacking = [str(what) for finding in failed for what in finding.content.get("unsupported") or ()]
    faults = any(finding.content.get("problems") or not finding.content.get("unsupported") for finding in failed)
    return (Word.invalid, "") if faults else (Word.unchecked, "; ".join(lacking))


def _refused(gate: Gate, why: str) -> GateRecord:
    if gate is GATES[0]:
        return GateRecord(
            gate=gate.name, outcome=GateOutcome.failed, detail=f"archive: {why}", content={"problems": [why]}
        )
    return GateRecord(gate=gate.name, outcome=GateOutcome.skipped, detail="an earlier gate failed")


def _verdict(
    target: Target,
    env: str | None,
    began_s: float,
    word: Word,
    *,
    reason: str = "",
    notes: tuple[str, ...] = (),
    gates: tuple[GateRecord, ...] = (),
) -> TaskVerdict:
    return TaskVerdict(
        task=target.name,
        path=str(target.path),
        env=env,
        verdict=word,
        reason=reason,
        notes=notes,
        gates=gates,
        wall_s=round(time.monotonic() - began_s, 3),
    )
