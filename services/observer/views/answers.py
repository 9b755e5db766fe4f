"""What became of every assignment, and under whom: the observations that comparisons of proposers rest on. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import get_args

import msgspec

from schemas.costs import Cost, CostBook, CostStage
from schemas.envelope import Event
from schemas.messages import EnvAbandoned, EnvCalibrated, EnvRequested, EnvValidated, RoundPlanned, RunStarted
from schemas.outcomes import Abandoned, Calibration, Role, Verdict
from schemas.parts import Arm, RosterEntry
from schemas.slots import SlotBook, Stage


@dataclass
class Answered:
    """One assignment as one entry answered it, revisions included. None: infrastructure failed, so nobody knows."""

    round: int
    slot: int
    assignment: bytes
    """Equal for slots that have one assignment."""
    entries: list[RosterEntry] = field(default_factory=list)
    """One a revision."""
    first_valid: bool | None = False
    valid: bool | None = False
    admitted: bool | None = False
    spread: float | None = None
    """Standard deviation of the solver's rewards in the last calibration."""
    usd: float = 0.0
    tokens: int = 0
    cpu_s: float = 0.0
    proposer_s: float = 0.0
    """Wall time of the proposer's work."""


def answered(events: Iterable[Event]) -> list[Answered]:
    """Every slot of a run that is done, by round and slot. Costs are those of proposals, draft checks, gates,
    calibrations and diagnoses.
    """
    book, costs = SlotBook(0), CostBook()
    rows: list[Cost] = []
    open_: dict[tuple[int, int], Answered] = {}
    done: dict[tuple[int, int], Answered] = {}
    for event in events:
        row = costs.fold(event)
        if row is not None and row.stage is CostStage.making and row.slot is not None:
            rows.append(row)
        body = event.body
        if isinstance(body, RunStarted):
            book = SlotBook(body.science.proposal.revisions_max)
        state = book.fold(body)
        if isinstance(body, RoundPlanned) or state is None:
            continue
        key = (body.round, getattr(body, "slot", 0))
        if key not in open_:
            open_[key] = Answered(*key, msgspec.json.encode(state.assignment, order="deterministic"))
        _take(open_[key], event)
        if state.stage is Stage.done:
            done[key] = open_[key]
    for row in rows:
        if (found := done.get((row.round, row.slot or 0))) is not None:
            _spend(found, row)
    return [done[key] for key in sorted(done)]


def _take(found: Answered, event: Event) -> None:
    match event.body:
        case EnvRequested() as body:
            found.entries.append(body.entry)
        case EnvAbandoned(reason=Abandoned.infra_failed) | EnvValidated(verdict=Verdict.infra_failed) as body:
            found.first_valid = None if body.revision == 0 else found.first_valid
            found.valid = found.valid or None
            found.admitted = None
        case EnvValidated(verdict=Verdict.valid) as body:
            found.first_valid = True if body.revision == 0 else found.first_valid
            found.valid = True
        case EnvCalibrated() as body:
            failed = body.outcome is Calibration.infra_failed
            found.admitted = None if failed else body.outcome is Calibration.admitted
            found.spread = found.spread if failed else body.std
        case _:
            pass


def _spend(found: Answered, row: Cost) -> None:
    found.usd += row.usd or 0.0
    found.tokens += (row.prompt_tokens or 0) + (row.completion_tokens or 0)
    found.cpu_s += row.cpu_s or 0.0
    found.proposer_s += (row.wall_s or 0.0) if row.role is Role.proposer else 0.0


def of_entry(answers: Iterable[Answered], name: str) -> list[Answered]:
    """Those that one entry alone answered: `NAME`, or `NAME/ARM` for one arm of it. What several entries answered, one
    revision each, is nobody's.
    """
    whole, _, arm = name.rpartition("/")
    by_arm = whole != "" and arm in get_args(Arm)
    return [
        each
        for each in answers
        if each.entries and all((e.name, e.arm) == (whole, arm) if by_arm else e.name == name for e in each.entries)
    ]
