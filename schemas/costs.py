"""What a run spends, folded from its log: one row a message that cost something, and one a try that said nothing.

Tokens are those of the bodies. US dollars are tokens times the price that the roster entry carries, 0.0 for a model
without one: nobody bills it by the token. Times are what the sayers observed. None is "not known", never "nothing".
"""

from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from schemas.envelope import Event
from schemas.identity import event_id
from schemas.messages import (
    CheckpointPublished,
    DraftChecked,
    DraftCheckRequested,
    EnvAbandoned,
    EnvImported,
    EnvProposed,
    EnvRechecked,
    EnvRecheckRequested,
    EnvRequested,
    EnvValidated,
    Message,
    RolloutCompleted,
    RolloutRequested,
    RunStarted,
    UpdatePlanned,
    WorkFailed,
    WorkParked,
    WorkStarted,
)
from schemas.models import ModelRules
from schemas.outcomes import Purpose, Role
from schemas.parts import RosterEntry, Usage


class CostStage(StrEnum):
    making = "making"
    """Proposals, draft checks and tries, gates, calibrations, diagnoses: the price of environments."""
    learning = "learning"
    """Rollouts for training and review, gates run again, updates."""
    evaluating = "evaluating"


class CostOutcome(StrEnum):
    answered = "answered"
    failed = "failed"
    started = "started"
    """A try whose end is not on the log."""


LEARNING = (Purpose.train.value, Purpose.review.value, "recheck", "update")


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `role` and `model` say who did the work; `entry` and `arm` for which proposer it was done."""

    seq: int = 0
    event: str = ""
    message: str = ""
    outcome: CostOutcome = CostOutcome.started
    work_id: str = ""
    try_: int | None = None
    role: Role
    entry: str | None = None
    model: str | None = None
    arm: str | None = None
    purpose: str
    """A purpose of rollouts, or propose, revise, check_draft, validate, recheck, update."""
    stage: CostStage
    round: int
    slot: int | None = None
    revision: int | None = None
    env: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """Part of `prompt_tokens`."""
    completion_tokens: int | None = None
    usd: float | None = None
    cpu_s: float | None = None
    sandbox_cpu_s: float | None = None
    wall_s: float | None = None
    """Of the whole try, on the first of its rows."""


def usd_of(usage: Usage, entry: RosterEntry | None) -> float:
    return entry.rules.price.usd(usage) if entry and isinstance(entry.rules, ModelRules) else 0.0


@dataclass
class _Work:
    """A work message: what a row about it says, and who is paid for it."""

    row: Cost
    payee: RosterEntry | None = None


@dataclass
class CostBook:
    """Feed it every event from the first, in order."""

    model: str = ""
    """The solver's."""
    entries: dict[tuple[int, int, int], RosterEntry] = field(default_factory=dict)
    """By round, slot and revision."""
    works: dict[str, _Work] = field(default_factory=dict)
    tries: dict[str, int] = field(default_factory=dict)
    """The newest try of each work; of parked work the one that would be next."""
    open: dict[tuple[str, int], Cost] = field(default_factory=dict)
    """Tries that have not said yet what they cost."""
    ended: set[str] = field(default_factory=set)
    """Work that is answered: an open try of it will say nothing more."""
    timed: set[tuple[str, int | None]] = field(default_factory=set)

    def fold(self, event: Event) -> Cost | None:
        """The row that the event is worth, if it is worth one."""
        body = event.body
        cost: Cost | None = None
        match body:
            case WorkStarted():
                cost = self._started(event, body)
            case WorkFailed():
                cost = self._failed(event, body)
            case WorkParked():
                self.tries[body.work_id] = body.try_
            case _ if (work_id := self._answered(body)) is not None:
                self.ended.add(work_id)
                cost = self._answer(event, work_id)
        if (work := self._work(body)) is not None:
            self.works[event.id] = work
        return cost

    def unknown(self) -> list[Cost]:
        """Tries that ended without a word: nobody knows what they cost."""
        return [
            row for (work, try_), row in self.open.items() if work in self.ended or try_ < self.tries.get(work, try_)
        ]

    def _started(self, event: Event, body: WorkStarted) -> Cost | None:
        self.tries[body.work_id] = max(body.try_, self.tries.get(body.work_id, 0))
        if (work := self.works.get(body.work_id)) is None:
            return None
        row = msgspec.structs.replace(
            work.row, seq=event.seq, event=event.id, message=body.name, work_id=body.work_id, try_=body.try_
        )
        self.open[body.work_id, body.try_] = row
        return row

    def _failed(self, event: Event, body: WorkFailed) -> Cost | None:
        work = self.works.get(body.work_id)
        usage = body.usage if isinstance(body.usage, Usage) else None
        return None if work is None else self._row(event, work, body.work_id, body.try_, usage, CostOutcome.failed)

    def _answer(self, event: Event, work_id: str) -> Cost | None:
        body, work = event.body, self.works.get(work_id)
        usage = getattr(body, "usage", None)
        usage = usage if isinstance(usage, Usage) else Usage()
        troubles = (getattr(body, name, None) for name in ("outcome", "verdict", "reason"))
        given_up = "infra_failed" in troubles and event.meta.started_ns is None and usage == Usage()
        if work is None or given_up:
            return None
        try_ = event.meta.try_ if event.meta.try_ is not None else self.tries.get(work_id)
        row = self._row(event, work, work_id, try_, usage, CostOutcome.answered)
        return msgspec.structs.replace(row, env=body.env) if isinstance(body, EnvProposed) else row

    def _row(
        self, event: Event, work: _Work, work_id: str, try_: int | None, usage: Usage | None, outcome: CostOutcome
    ) -> Cost:
        first = (work_id, try_) not in self.timed
        self.timed.add((work_id, try_))
        if try_ is not None:
            self.open.pop((work_id, try_), None)
        return msgspec.structs.replace(
            work.row,
            seq=event.seq,
            event=event.id,
            message=event.body.name,
            outcome=outcome,
            work_id=work_id,
            try_=try_,
            prompt_tokens=usage.prompt_tokens if usage else None,
            cached_tokens=usage.cached_tokens if usage else None,
            completion_tokens=usage.completion_tokens if usage else None,
            usd=usd_of(usage, work.payee) if usage else None,
            cpu_s=event.meta.cpu_s,
            sandbox_cpu_s=event.meta.sandbox_cpu_s,
            wall_s=event.meta.wall_s if first else 0.0,
        )

    def _answered(self, body: Message) -> str | None:
        """Id of the work that a message answers; None for any other message."""
        match body:
            case EnvProposed() | EnvAbandoned():
                return event_id(EnvRequested.name, body.key())
            case EnvValidated():
                return event_id(EnvProposed.name, body.key())
            case DraftChecked():
                return event_id(DraftCheckRequested.name, body.key())
            case EnvRechecked():
                asked = event_id(EnvRecheckRequested.name, body.key())
                return asked if asked in self.works else event_id(EnvImported.name, (body.ordinal,))
            case RolloutCompleted():
                return body.request
            case CheckpointPublished(checkpoint_version=0):
                return event_id(RunStarted.name, ())
            case CheckpointPublished():
                return event_id(UpdatePlanned.name, (body.role.value, body.checkpoint_version))
            case _:
                return None

    def _work(self, body: Message) -> _Work | None:
        """What is said about a work message; None for any other message."""
        match body:
            case RunStarted():
                self.model = body.science.model
                return self._of(Role.trainer, "update", body, None)
            case UpdatePlanned():
                return self._of(Role.trainer, "update", body, None)
            case EnvRequested():
                self.entries[body.round, body.slot, body.revision] = body.entry
                return self._of(Role.proposer, "revise" if body.revision else "propose", body, body.entry)
            case EnvProposed():
                return self._of(Role.validator, "validate", body, body.entry, body.env)
            case DraftCheckRequested():
                return self._of(Role.validator, "check_draft", body, self._entry(body), body.draft)
            case EnvImported() | EnvRecheckRequested():
                return self._of(Role.validator, "recheck", body, None, body.env)
            case RolloutRequested():
                return self._of(Role.solver, body.purpose.value, body, self._entry(body), body.env)
            case _:
                return None

    def _entry(self, body: DraftCheckRequested | RolloutRequested) -> RosterEntry | None:
        """For whom it is done: the proposer whose slot it is."""
        return self.entries.get((body.round, body.slot, body.revision or 0)) if body.slot is not None else None

    def _of(self, role: Role, purpose: str, body: Message, entry: RosterEntry | None, env: str | None = None) -> _Work:
        stage = CostStage.learning if purpose in LEARNING else CostStage.making
        model = {Role.proposer: entry.model if entry else None, Role.validator: None}.get(role, self.model)
        row = Cost(
            role=role,
            entry=entry.name if entry else None,
            model=model,
            arm=entry.arm if entry else None,
            purpose=purpose,
            stage=CostStage.evaluating if purpose == Purpose.evaluate else stage,
            round=body.round,
            slot=getattr(body, "slot", None),
            revision=getattr(body, "revision", None),
            env=env,
        )
        return _Work(row, entry if role is Role.proposer else None)


@dataclass
class CostSum:
    """Sums over rows, of what is known."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    cpu_s: float = 0.0
    sandbox_cpu_s: float = 0.0

    def add(self, row: Cost) -> None:
        self.prompt_tokens += row.prompt_tokens or 0
        self.cached_tokens += row.cached_tokens or 0
        self.completion_tokens += row.completion_tokens or 0
        self.usd += row.usd or 0.0
        self.cpu_s += row.cpu_s or 0.0
        self.sandbox_cpu_s += row.sandbox_cpu_s or 0.0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens
