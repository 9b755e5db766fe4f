"""What the observer knows of a run: counts by round, answers by proposer, held-out scores, costs. A pure fold."""

from collections import Counter
from dataclasses import dataclass, field
from math import sqrt

from schemas.costs import CostBook, CostStage, CostSum
from schemas.envelope import Event
from schemas.messages import (
    CheckpointPublished,
    EnvAbandoned,
    EnvCalibrated,
    EnvProposed,
    EnvRequested,
    EnvValidated,
    PoolChanged,
    RolloutCompleted,
    RolloutRequested,
    RoundClosed,
    RoundPlanned,
    RunFinished,
    RunStarted,
    UpdatePlanned,
    WorkFailed,
    WorkParked,
    WorkStarted,
)
from schemas.outcomes import (
    Abandoned,
    Calibration,
    CheckpointReason,
    GateOutcome,
    Purpose,
    Role,
    RolloutOutcome,
    Verdict,
)

Z_95 = 1.959963984540054
"""Two-sided 95% quantile of the normal distribution."""

Place = tuple[int, int, int]
"""Round, slot, revision."""


def wilson(mean: float, count: int, z: float = Z_95) -> tuple[float, float]:
    """Wilson score interval of a share. For a mean of values in [0, 1] it is at least as wide as it must be,
    since no such value varies more than a yes or no of the same mean. No values: (0, 1)."""
    if count == 0:
        return 0.0, 1.0
    centre = mean + z * z / (2 * count)
    spread = z * sqrt(max(0.0, mean * (1 - mean)) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


@dataclass
class Round:
    """Counts of one round. What infrastructure failed is in the counts of outcomes, and in no rate."""

    planned: int = 0
    waves: int = 0
    target: int = 0
    requested: int = 0
    """First requests of slots."""
    revisions: int = 0
    proposed: int = 0
    valid: int = 0
    invalid: int = 0
    admitted: int = 0
    """By calibration; the pool may still refuse one as a duplicate."""
    admitted_after_revision: int = 0
    added: int = 0
    long_calibrations: int = 0
    """Those that needed more attempts because the mean was near an edge."""
    updates_planned: int = 0
    updates_total: int = 0
    degraded: bool = False
    digest: str | None = None
    abandoned: Counter[str] = field(default_factory=Counter)
    failed_gates: Counter[str] = field(default_factory=Counter)
    """Invalid environments by the first gate that failed."""
    calibrations: Counter[str] = field(default_factory=Counter)
    rollouts: Counter[str] = field(default_factory=Counter)
    """By purpose."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Rollouts by outcome."""
    checkpoints: Counter[str] = field(default_factory=Counter)
    """Checkpoints of the solver by reason; the cold start counts in round 0."""
    dropped: Counter[str] = field(default_factory=Counter)
    retired: Counter[str] = field(default_factory=Counter)
    evaluated: set[int] = field(default_factory=set)
    """Checkpoint versions that were evaluated in this round."""

    @property
    def updates(self) -> int:
        return sum(self.checkpoints.values()) - self.checkpoints[CheckpointReason.cold_start.value]


@dataclass
class Maker:
    """Answers of one proposer entry."""

    answered: int = 0
    """All but those that infrastructure failed."""
    valid: int = 0
    admitted: int = 0
    first_answered: int = 0
    """Answers to first requests, revisions left out."""
    first_valid: int = 0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One rollout on a held-out environment."""

    set_name: str
    checkpoint_version: int
    env: str
    outcome: RolloutOutcome
    reward: float | None
    tests: tuple[tuple[str, bool], ...]


@dataclass
class Progress:
    """Everything the report and the live display say, after the events folded so far."""

    run: RunStarted | None = None
    finished: str | None = None
    round: int = -1
    """The newest planned round."""
    started_ns: int = 0
    last_ns: int = 0
    pool_version: int = 0
    pool_size: int = 0
    checkpoint_version: int = -1
    rounds: dict[int, Round] = field(default_factory=dict)
    makers: dict[str, Maker] = field(default_factory=dict)
    pool: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Version, members, added, retired."""
    evaluations: list[Evaluation] = field(default_factory=list)
    costs: CostBook = field(default_factory=CostBook)
    spent: dict[CostStage, CostSum] = field(default_factory=lambda: {stage: CostSum() for stage in CostStage})
    messages: Counter[str] = field(default_factory=Counter)
    tries: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    parked: int = 0
    inert: list[str] = field(default_factory=list)
    """Second answers to one request: they change nothing."""
    seen: set[str] = field(default_factory=set)
    answers: dict[Place, tuple[str, str | None]] = field(default_factory=dict)
    """The first answer to each request: the proposer's entry, and the environment if there is one."""
    sets: dict[str, str] = field(default_factory=dict)
    """Held-out set by open evaluation request."""

    def of(self, number: int) -> Round:
        return self.rounds.setdefault(number, Round())


def initial() -> Progress:
    return Progress()


def fold(view: Progress, event: Event) -> Progress:
    """Take one event in; one that was folded before changes nothing."""
    if event.id in view.seen:
        return view
    view.seen.add(event.id)
    body, meta = event.body, event.meta
    view.messages[body.name] += 1
    view.last_ns = max(view.last_ns, meta.at_ns)
    if (cost := view.costs.fold(event)) is not None:
        view.spent[cost.stage].add(cost)
    match body:
        case RunStarted():
            view.run, view.started_ns = body, meta.at_ns
        case RunFinished():
            view.finished = view.finished if view.finished is not None else body.why
        case EnvRequested():
            _requested(view.of(body.round), body)
        case EnvProposed() | EnvAbandoned():
            _answered(view, event.id, body)
        case EnvValidated():
            _validated(view, body)
        case EnvCalibrated():
            _calibrated(view, body)
        case RolloutRequested() if body.purpose is Purpose.evaluate:
            view.sets[event.id] = body.set_name or ""
        case RolloutRequested():
            view.of(body.round).long_calibrations += body.purpose is Purpose.calibrate and body.ordinal > 0
        case RolloutCompleted():
            _rolled(view, body)
        case WorkStarted():
            view.tries += 1
        case WorkFailed():
            view.failures[f"{body.role.value}: {body.error.kind}"] += 1
        case WorkParked():
            view.parked += 1
        case _:
            _decided(view, event)
    return view


def _decided(view: Progress, event: Event) -> None:
    body = event.body
    counts = view.of(body.round) if isinstance(body, RoundPlanned | PoolChanged | UpdatePlanned | RoundClosed) else None
    match body:
        case RoundPlanned() if counts is not None:
            view.round = max(view.round, body.round)
            counts.target = body.target if body.wave == 0 else counts.target
            counts.planned += len(body.slots)
            counts.waves += 1
            counts.updates_total = view.run.science.training.updates_per_round if view.run else 0
        case PoolChanged() if counts is not None:
            view.pool_version, view.pool_size = body.pool_version, len(body.members)
            view.pool.append((body.pool_version, len(body.members), len(body.added), len(body.retired)))
            counts.added += len(body.added)
            counts.retired.update(leaving.reason.value for leaving in body.retired)
        case UpdatePlanned() if counts is not None:
            counts.updates_planned += 1
            counts.dropped.update(group.reason.value for group in body.dropped)
        case RoundClosed() if counts is not None:
            counts.degraded, counts.digest = body.degraded, body.digest
        case CheckpointPublished():
            if body.role is Role.solver:
                view.checkpoint_version = max(view.checkpoint_version, body.checkpoint_version)
                view.of(body.round).checkpoints[body.reason.value] += 1
        case _:
            pass


def _requested(counts: Round, body: EnvRequested) -> None:
    if body.revision == 0:
        counts.requested += 1
    else:
        counts.revisions += 1


def _answered(view: Progress, id_: str, body: EnvProposed | EnvAbandoned) -> None:
    place = (body.round, body.slot, body.revision)
    if place in view.answers:
        view.inert.append(id_)
        return
    view.answers[place] = (body.entry.name, body.env if isinstance(body, EnvProposed) else None)
    if isinstance(body, EnvProposed):
        view.of(body.round).proposed += 1
        return
    view.of(body.round).abandoned[body.reason.value] += 1
    if body.reason is not Abandoned.infra_failed:
        _count_answer(view, place, valid=False)


def _validated(view: Progress, body: EnvValidated) -> None:
    counts = view.of(body.round)
    place = (body.round, body.slot, body.revision)
    if body.verdict is Verdict.infra_failed or view.answers.get(place, ("", body.env))[1] != body.env:
        return
    valid = body.verdict is Verdict.valid
    counts.valid += valid
    counts.invalid += not valid
    if not valid:
        failed = (gate.gate for gate in body.gates if gate.outcome is GateOutcome.failed)
        counts.failed_gates[next(failed, "unknown")] += 1
    _count_answer(view, place, valid=valid)


def _count_answer(view: Progress, place: Place, *, valid: bool) -> None:
    maker = _maker(view, place)
    maker.answered += 1
    maker.valid += valid
    if place[2] == 0:
        maker.first_answered += 1
        maker.first_valid += valid


def _maker(view: Progress, place: Place) -> Maker:
    return view.makers.setdefault(view.answers.get(place, ("unknown", None))[0], Maker())


def _calibrated(view: Progress, body: EnvCalibrated) -> None:
    counts = view.of(body.round)
    counts.calibrations[body.outcome.value] += 1
    if body.outcome is Calibration.admitted:
        counts.admitted += 1
        counts.admitted_after_revision += body.revision > 0
        _maker(view, (body.round, body.slot, body.revision)).admitted += 1


def _rolled(view: Progress, body: RolloutCompleted) -> None:
    counts = view.of(body.round)
    counts.rollouts[body.purpose.value] += 1
    counts.outcomes[body.outcome.value] += 1
    if body.purpose is Purpose.evaluate:
        counts.evaluated.add(body.checkpoint_version)
        tests = tuple(sorted(body.tests.items()))
        name = view.sets.get(body.request, "")
        view.evaluations.append(Evaluation(name, body.checkpoint_version, body.env, body.outcome, body.reward, tests))
