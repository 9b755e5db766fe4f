"""What the validator's decider says: calibrations, reviews, the pool. Pure."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from schemas.budget import BudgetBook
from schemas.envelope import Event
from schemas.identity import derive_seed, event_id
from schemas.messages import (
    CheckpointPublished,
    DraftChecked,
    DraftCheckRequested,
    EnvAbandoned,
    EnvCalibrated,
    EnvImported,
    EnvProposed,
    EnvRecalled,
    EnvRechecked,
    EnvRecheckRequested,
    EnvRequested,
    EnvValidated,
    Message,
    PoolChanged,
    RolloutCompleted,
    RolloutRequested,
    RoundPlanned,
    RunFinished,
    RunStarted,
    SlotMessage,
    UpdatePlanned,
)
from schemas.outcomes import Calibration, Purpose, Retired, Role, Verdict
from schemas.parked import OpenWork
from schemas.parts import PoolEntry, PoolLeaving
from schemas.rot import RotBook
from schemas.rules import calibration_outcome, commonest_failure, enough, likeness, mean_std, near_edge
from schemas.seeds import SeedBook
from schemas.slots import SlotBook, Stage, to_diagnose

VERSION = 1


@dataclass
class Trial:
    """The calibration of one revision of one slot."""

    env: str
    groups: list[RolloutRequested] = field(default_factory=list)
    done: dict[str, RolloutCompleted] = field(default_factory=dict)
    """By rollout id."""

    def asked(self) -> int:
        return sum(group.attempts for group in self.groups)

    def scored(self) -> list[RolloutCompleted]:
        """Unmasked attempts in the order they were asked for."""
        order = {group.id: place for place, group in enumerate(self.groups)}
        ranked = sorted(self.done.values(), key=lambda rollout: (order[rollout.request], rollout.attempt))
        return [rollout for rollout in ranked if rollout.reward is not None]


@dataclass
class Review:
    """The review of the pool that the running round waits for."""

    open: dict[str, RolloutRequested] = field(default_factory=dict)
    fresh: dict[str, dict[int, RolloutCompleted]] = field(default_factory=dict)
    """By environment and attempt."""
    members: tuple[str, ...] = ()
    update: int = 0
    """The newest update when the review began."""

    def complete(self) -> bool:
        return all(len(self.fresh.get(env, {})) >= request.attempts for env, request in self.open.items())


@dataclass
class View:
    run: RunStarted | None = None
    finished: bool = False
    checkpoint: tuple[int, str] = (0, "")
    book: SlotBook = field(default_factory=lambda: SlotBook(0))
    trials: dict[tuple[int, int, int], Trial] = field(default_factory=dict)
    by_request: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    pool_version: int = 0
    members: dict[str, PoolEntry] = field(default_factory=dict)
    sketches: dict[str, str] = field(default_factory=dict)
    trained: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """Per environment: checkpoint version and reward of each training rollout."""
    quarantined: set[str] = field(default_factory=set)
    reviewed_update: int = 0
    update: int = 0
    review: Review = field(default_factory=Review)
    rot: RotBook = field(default_factory=RotBook)
    planned_checkpoint: tuple[int, str] = (0, "")
    work: OpenWork = field(
        default_factory=lambda: OpenWork(
            Role.validator, (EnvProposed, DraftCheckRequested, EnvRecheckRequested, EnvImported)
        )
    )
    budget: BudgetBook = field(default_factory=BudgetBook)
    seeds: SeedBook = field(default_factory=SeedBook)
    seen: set[str] = field(default_factory=set)
    decided: tuple[str, tuple[Message, ...]] = ("", ())


def initial() -> View:
    return View()


def fold(view: View, event: Event) -> View:
    """Take one event in. The messages that follow from it are kept for `decide`."""
    if event.id in view.seen:
        return view
    view.seen.add(event.id)
    view.decided = (event.id, tuple(_react(view, event)))
    return view


def decide(view: View, event: Event) -> list[Message]:
    """The messages that follow from the event just folded; nothing for an event that was folded before."""
    return list(view.decided[1]) if view.decided[0] == event.id else []


def _react(view: View, event: Event) -> list[Message]:
    body = event.body
    said = view.work.fold(event.id, body)
    view.budget.fold(event.id, body)
    view.seeds.fold(event.id, body)
    if view.finished:
        return []
    match body:
        case RunStarted():
            view.run = body
            view.book = SlotBook(body.science.proposal.revisions_max)
            view.work.give_up = body.science.failures.parked == "give_up"
        case RunFinished():
            view.finished = True
        case CheckpointPublished() if body.role is Role.solver:
            view.checkpoint = (body.checkpoint_version, body.checkpoint)
        case UpdatePlanned():
            view.update = body.update
        case RoundPlanned():
            said += _round_planned(view, body)
        case EnvRequested() | EnvProposed() | EnvAbandoned() | EnvValidated() | EnvCalibrated():
            said += _slot_moved(view, body)
        case DraftChecked():
            view.work.close(event_id(DraftCheckRequested.name, body.key()))
        case EnvRechecked():
            said += _rechecked(view, body)
        case EnvRecalled():
            view.rot.fold(body)
        case RolloutCompleted():
            said += _rollout(view, body)
        case PoolChanged():
            _take_pool(view, body)
        case _:
            pass
    return view.budget.allowed([*said, *view.seeds.ask(view.run, view.checkpoint)])


def _round_planned(view: View, body: RoundPlanned) -> list[Message]:
    view.book.fold(body)
    view.planned_checkpoint = (body.checkpoint_version, body.checkpoint)
    return [*_begin_review(view), *_begin_rechecks(view)] if body.wave == 0 else []


def _slot_moved(
    view: View, body: EnvRequested | EnvProposed | EnvAbandoned | EnvValidated | EnvCalibrated
) -> list[Message]:
    state = view.book.fold(body)
    if isinstance(body, EnvValidated):
        view.work.close(event_id(EnvProposed.name, body.key()))
    if state is None:
        return []
    if isinstance(body, EnvValidated) and body.verdict is Verdict.valid:
        view.sketches[body.env] = body.sketch or ""
        return [_calibrate(view, body, 0)]
    if to_diagnose(body, state, _known(view).science.proposal):
        return [_diagnose(view, body)]
    return _maybe_pool(view) if state.stage is Stage.done else []


def _calibrate(view: View, about: EnvValidated | RolloutRequested, ordinal: int) -> RolloutRequested:
    run = _known(view)
    slot, revision = about.slot or 0, about.revision or 0
    version, checkpoint = view.planned_checkpoint
    rules = run.science.calibration
    request = RolloutRequested(
        round=about.round,
        env=about.env,
        checkpoint_version=version,
        checkpoint=checkpoint,
        purpose=Purpose.calibrate,
        attempts=rules.attempts if ordinal == 0 else rules.attempts_more,
        seed=derive_seed(run.seed, "calibrate", about.round, slot, revision, ordinal),
        ordinal=ordinal,
        slot=slot,
        revision=revision,
    )
    key = (about.round, slot, revision)
    view.trials.setdefault(key, Trial(about.env)).groups.append(request)
    view.by_request[request.id] = key
    return request


def _diagnose(view: View, about: SlotMessage) -> RolloutRequested:
    """One attempt with hints; what it earns counts nowhere."""
    trial = view.trials[about.round, about.slot, about.revision]
    return replace(
        trial.groups[0],
        purpose=Purpose.diagnose,
        attempts=1,
        seed=derive_seed(_known(view).seed, "diagnose", about.round, about.slot, about.revision),
    )


def _rollout(view: View, body: RolloutCompleted) -> list[Message]:
    if body.broken:
        view.quarantined.add(body.env)
    if body.purpose is Purpose.train and body.reward is not None:
        view.trained.setdefault(body.env, []).append((body.checkpoint_version, body.reward))
    if body.purpose is Purpose.calibrate and body.request in view.by_request:
        return _calibrated(view, body)
    if body.purpose is Purpose.review and body.env in view.review.open:
        view.review.fresh.setdefault(body.env, {})[body.attempt] = body
        return _maybe_pool(view)
    return []


def _calibrated(view: View, body: RolloutCompleted) -> list[Message]:
    run = _known(view)
    key = view.by_request[body.request]
    trial = view.trials[key]
    trial.done[body.id] = body
    if len(trial.done) < trial.asked():
        return []
    scored = trial.scored()
    rewards = [rollout.reward or 0.0 for rollout in scored]
    mean, std = mean_std(rewards)
    rules = run.science.calibration
    if len(trial.groups) == 1 and enough(len(rewards), trial.asked()) and near_edge(mean, rules):
        return [_calibrate(view, trial.groups[0], 1)]
    return [
        EnvCalibrated(
            round=key[0],
            slot=key[1],
            revision=key[2],
            env=trial.env,
            outcome=calibration_outcome(rewards, trial.asked(), rules),
            mean=mean,
            std=std,
            count=len(rewards),
            rollouts=tuple(rollout.id for rollout in scored),
            commonest_failure=commonest_failure(rollout.tests for rollout in scored),
        )
    ]


def _begin_review(view: View) -> list[Message]:
    """Is a review due? Members with too few training rollouts since the last one are run afresh."""
    run = _known(view)
    view.review = Review(update=view.update)
    rules = run.science.pool
    if view.update - view.reviewed_update < rules.review_every_updates:
        return []
    view.review.members = tuple(sorted(view.members))
    version, checkpoint = view.planned_checkpoint
    for env in view.review.members:
        if env in view.quarantined or len(_recent(view, env)) >= rules.review_attempts:
            continue
        view.review.open[env] = RolloutRequested(
            round=view.book.round,
            env=env,
            checkpoint_version=version,
            checkpoint=checkpoint,
            purpose=Purpose.review,
            attempts=rules.review_attempts,
            seed=derive_seed(run.seed, "review", version, env),
        )
    return list(view.review.open.values())


def _begin_rechecks(view: View) -> list[Message]:
    run, round_ = _known(view), view.book.round
    return [
        EnvRecheckRequested(round=round_, env=env, ordinal=round_, base_digest=run.base_digest, cause="aged")
        for env in view.rot.begin(round_, view.members, run.science.pool.recheck_every_rounds)
    ]


def _rechecked(view: View, body: EnvRechecked) -> list[Message]:
    view.work.close(event_id(EnvRecheckRequested.name, body.key()))
    view.work.close(event_id(EnvImported.name, (body.ordinal,)))
    return _maybe_pool(view) if view.rot.fold(body) else []


def _recent(view: View, env: str) -> list[float]:
    """Rewards of the newest training group on an environment since the last review."""
    recent = [(version, reward) for version, reward in view.trained.get(env, []) if version >= view.reviewed_update]
    newest = max((version for version, _ in recent), default=0)
    return sorted(reward for version, reward in recent if version == newest)


def _maybe_pool(view: View) -> list[Message]:
    """The pool, once every slot is terminal, enough were admitted or no wave is left, and review and rechecks are
    complete.
    """
    if not view.book.round_done() or not view.review.complete() or view.rot.open:
        return []
    if view.pool_version > view.book.round:
        return []
    leaving = _leaving(view)
    gone = {entry.env for entry in leaving}
    kept = {env: entry for env, entry in view.members.items() if env not in gone}
    added, refused = _joining(view, kept)
    members = sorted([*kept, *(entry.env for entry in added)])
    return [
        PoolChanged(
            round=view.book.round,
            pool_version=view.book.round + 1,
            members=tuple(members),
            added=tuple(added),
            retired=tuple(sorted(leaving, key=lambda entry: entry.env) + refused),
        )
    ]


def _leaving(view: View) -> list[PoolLeaving]:
    run = _known(view)
    leaving = [
        PoolLeaving(env=env, reason=Retired.quarantined, detail="cannot be graded")
        for env in view.members
        if env in view.quarantined
    ]
    leaving += [
        PoolLeaving(env=env, reason=Retired.rotted, detail=reason)
        for env in view.members
        if env not in view.quarantined and (reason := view.rot.reason(env)) is not None
    ]
    gone = {entry.env for entry in leaving}
    for env in view.review.members:
        fresh = [rollout.reward for rollout in view.review.fresh.get(env, {}).values() if rollout.reward is not None]
        rewards = sorted(fresh) if env in view.review.open else _recent(view, env)
        outcome = calibration_outcome(rewards, len(rewards), run.science.calibration)
        if env in gone or outcome in (Calibration.admitted, Calibration.infra_failed):
            continue
        mean, std = mean_std(rewards)
        detail = f"mean {mean:.3f}, std {std:.3f} of {len(rewards)}"
        leaving.append(PoolLeaving(env=env, reason=Retired(outcome.value), detail=detail))
    return leaving


def _joining(view: View, kept: dict[str, PoolEntry]) -> tuple[list[PoolEntry], list[PoolLeaving]]:
    """Admitted environments in slot order; one too like an earlier one of this round is refused."""
    rules = _known(view).science.pool
    added: list[PoolEntry] = []
    refused: list[PoolLeaving] = []
    for slot in view.book.admitted():
        env = view.book.slots[slot].env or ""
        twin = next((entry.env for entry in added if _alike(view, entry.env, env, rules.duplicate_similarity)), None)
        if (rotten := view.rot.reason(env)) is not None and env not in view.quarantined:
            refused.append(PoolLeaving(env=env, reason=Retired.rotted, detail=rotten))
        elif twin is not None or env in kept or env in view.quarantined:
            why = Retired.quarantined if env in view.quarantined else Retired.duplicate
            refused.append(PoolLeaving(env=env, reason=why, detail=f"slot {slot}: like {(twin or env)[:12]}"))
        elif len(kept) + len(added) < rules.target:
            added.append(PoolEntry(env=env, round=view.book.round, slot=slot))
    return added, refused


def _alike(view: View, one: str, other: str, threshold: float) -> bool:
    return one == other or likeness(view.sketches.get(one, ""), view.sketches.get(other, "")) >= threshold


def _take_pool(view: View, body: PoolChanged) -> None:
    entries = {**view.members, **{entry.env: entry for entry in body.added}}
    view.members = {env: entries[env] for env in body.members}
    view.pool_version = body.pool_version
    view.rot.forget_all_but(view.members)
    if view.review.members:
        view.reviewed_update = view.review.update


def _known(view: View) -> RunStarted:
    """The run, which stands first in the log."""
    if view.run is None:
        raise ValueError("the log holds work before RunStarted")
    return view.run
