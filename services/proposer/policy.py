"""What the proposer's decider says: plans of rounds and waves, requests for environments, revisions. Pure."""

from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from schemas.budget import BudgetBook
from schemas.envelope import Event
from schemas.identity import derive_seed, event_id, permutation
from schemas.messages import (
    CheckpointPublished,
    EnvAbandoned,
    EnvCalibrated,
    EnvProposed,
    EnvRequested,
    EnvValidated,
    Message,
    PoolChanged,
    RolloutCompleted,
    RolloutRequested,
    RosterChanged,
    RoundClosed,
    RoundPlanned,
    RunFinished,
    RunStarted,
)
from schemas.outcomes import Direction, GateOutcome, Purpose, Role, Verdict
from schemas.parked import OpenWork
from schemas.parts import Assignment, CitedRollout, Evidence, RosterEntry, Slot
from schemas.roster import by_share, for_pair, in_force
from schemas.rules import commonest_failure, mean_std
from schemas.seeds import SeedBook
from schemas.slots import SlotBook, SlotState, Stage, to_diagnose

VERSION = 1
NEW_EVERY = 4
"""Each fourth slot has no parent, so that the pool never narrows to the offspring of a few."""


@dataclass
class Parent:
    """An environment of the pool with what the solver's newest rollouts on it showed."""

    env: str
    domain: str
    mean: float
    failure: str | None
    rollouts: tuple[CitedRollout, ...]


@dataclass
class View:
    run: RunStarted | None = None
    finished: bool = False
    checkpoint: tuple[int, str] | None = None
    roster: list[RosterChanged] = field(default_factory=list)
    pool_version: int = 0
    members: tuple[str, ...] = ()
    domains: dict[str, str] = field(default_factory=dict)
    records: dict[str, list[RolloutCompleted]] = field(default_factory=dict)
    """Rollouts by environment, of the newest checkpoint seen on it."""
    book: SlotBook = field(default_factory=lambda: SlotBook(0))
    parents: list[Parent] = field(default_factory=list)
    """As they stood when the round was planned: later waves choose from the same."""
    seeds: SeedBook = field(default_factory=SeedBook)
    postponed: int | None = None
    """The round that is planned once all imports are checked and tried."""
    bound: dict[int, RosterEntry] = field(default_factory=dict)
    """With paired slots: who has each of them, revisions included."""
    undiagnosed: dict[int, EnvCalibrated] = field(default_factory=dict)
    """By slot: what was too hard, and is revised once it is diagnosed."""
    diagnoses: dict[str, int] = field(default_factory=dict)
    """Slots by the id of the request for their diagnosis."""
    deltas: dict[tuple[int, int, int], str] = field(default_factory=dict)
    memory: tuple[str, ...] = ()
    work: OpenWork = field(default_factory=lambda: OpenWork(Role.proposer, (EnvRequested,)))
    budget: BudgetBook = field(default_factory=BudgetBook)
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
        case RosterChanged() if body.role is Role.proposer:
            view.roster.append(body)
        case CheckpointPublished() if body.role is Role.solver:
            view.checkpoint = (body.checkpoint_version, body.checkpoint)
            if body.checkpoint_version == 0:
                said += _plan_round(view, 0)
        case PoolChanged():
            view.pool_version, view.members = body.pool_version, body.members
        case RolloutRequested(purpose=Purpose.diagnose) if body.slot is not None:
            view.diagnoses[event.id] = body.slot
        case RolloutCompleted(purpose=Purpose.diagnose):
            said += _diagnosed(view, body)
        case RolloutCompleted() if body.purpose is not Purpose.draft:
            # An author submits what came out well: its tries would flatter the parent.
            _record(view, body)
        case RoundClosed():
            view.memory += tuple(view.deltas[key] for key in sorted(view.deltas))
            view.deltas = {}
            said += _plan_round(view, body.round + 1)
        case RoundPlanned():
            view.book.fold(body)
            said += _issue(view)
        case EnvProposed() | EnvAbandoned() | EnvValidated() | EnvCalibrated():
            said += _answered(view, body)
        case _:
            pass
    if view.postponed is not None and not view.seeds.waiting:
        said += _plan_round(view, view.postponed)
    return view.budget.allowed(said)


def _record(view: View, rollout: RolloutCompleted) -> None:
    """Keep the rollouts of the newest checkpoint on an environment; older ones say less."""
    if rollout.reward is None:
        return
    kept = view.records.setdefault(rollout.env, [])
    if kept and kept[0].checkpoint_version > rollout.checkpoint_version:
        return
    if kept and kept[0].checkpoint_version < rollout.checkpoint_version:
        kept.clear()
    kept.append(rollout)


def _answered(view: View, body: EnvProposed | EnvAbandoned | EnvValidated | EnvCalibrated) -> list[Message]:
    if isinstance(body, EnvProposed | EnvAbandoned):
        view.work.close(event_id(EnvRequested.name, body.key()))
    state = view.book.fold(body)
    if state is None:
        return []
    if isinstance(body, EnvProposed | EnvAbandoned) and body.memory_delta is not None:
        view.deltas[body.round, body.slot, body.revision] = body.memory_delta
    if isinstance(body, EnvProposed):
        view.domains[body.env] = state.assignment.domain
        return []
    if isinstance(body, EnvCalibrated) and to_diagnose(body, state, _known(view)[0].science.proposal):
        view.undiagnosed[body.slot] = body
        return []
    if state.stage is Stage.revising:
        return [_request(view, body.slot, state, body.revision + 1, _evidence(body))]
    if state.stage is not Stage.done:
        return []
    if view.book.wave_done() and not view.book.round_done():
        return [_plan_wave(view, view.book.wave + 1, view.book.deficit(), view.book.waves_left - 1)]
    return _issue(view)


def _diagnosed(view: View, rollout: RolloutCompleted) -> list[Message]:
    """The revision that waited. A diagnosis that infrastructure failed leaves its evidence as it was."""
    slot = view.diagnoses.pop(rollout.request, None)
    calibrated = view.undiagnosed.pop(slot, None) if slot is not None else None
    if slot is None or calibrated is None:
        return []
    evidence = _evidence(calibrated)
    if rollout.reward is not None:
        evidence = replace(evidence, diagnosis=_cited(rollout))
    return [_request(view, slot, view.book.slots[slot], calibrated.revision + 1, evidence)]


def _cited(rollout: RolloutCompleted) -> CitedRollout:
    return CitedRollout(id=rollout.id, content=rollout.content or "", reward=rollout.reward or 0.0, tests=rollout.tests)


def _plan_round(view: View, round_: int) -> list[Message]:
    run = view.run
    if run is None or view.checkpoint is None or round_ >= run.science.rounds or round_ <= view.book.round:
        return []
    view.postponed = round_ if view.seeds.waiting else None
    if view.postponed is not None:
        return []
    view.parents = _parents(view)
    view.book.round, view.book.wave, view.book.slots, view.bound = round_, -1, {}, {}
    return [_plan_wave(view, 0, run.science.pool.admit_per_round, run.science.pool.waves_max - 1)]


def _plan_wave(view: View, wave: int, count: int, waves_left: int) -> RoundPlanned:
    _, checkpoint = _known(view)
    round_ = view.book.round
    first = len(view.book.slots)
    return RoundPlanned(
        round=round_,
        wave=wave,
        target=count,
        waves_left=waves_left,
        slots=tuple(Slot(slot=slot, assignment=_assign(view, slot)) for slot in range(first, first + count)),
        checkpoint_version=checkpoint[0],
        checkpoint=checkpoint[1],
        pool_version=view.pool_version,
        memory=view.memory,
    )


def _parents(view: View) -> list[Parent]:
    """Pool members and imports with the newest rollouts on them, in an order of the seed."""
    run, _ = _known(view)
    parents = []
    for env in permutation({*view.members, *view.seeds.ready}, run.seed, "parents", view.pool_version):
        rollouts = sorted(view.records.get(env, []), key=lambda rollout: (rollout.attempt, rollout.id))
        if not rollouts:
            continue
        mean, _ = mean_std([rollout.reward or 0.0 for rollout in rollouts])
        refs = tuple(_cited(rollout) for rollout in rollouts[: run.science.proposal.cited_max])
        failure = commonest_failure(rollout.tests for rollout in rollouts)
        parents.append(Parent(env, view.domains.get(env, "any"), mean, failure, refs))
    return parents


def _assign(view: View, slot: int) -> Assignment:
    run, _ = _known(view)
    round_ = view.book.round
    paired = run.science.proposal.paired and len(_entries(view)) > 1
    first, turn = (slot - slot % 2, slot // 2) if paired else (slot, slot)
    seed = derive_seed(run.seed, "assignment", round_, first)
    past = tuple(permutation(view.members, run.seed, "past", round_, first)[: run.science.proposal.past_max])
    if not view.parents or turn % NEW_EVERY == NEW_EVERY - 1:
        domains = permutation(run.science.domains, run.seed, "domains", round_) or ["any"]
        return Assignment(direction=Direction.new, domain=domains[turn % len(domains)], seed=seed, past=past)
    parent = view.parents[(turn - turn // NEW_EVERY) % len(view.parents)]
    return Assignment(
        direction=_direction(parent.mean),
        domain=parent.domain,
        seed=seed,
        parent=parent.env,
        pass_rate=parent.mean,
        commonest_failure=parent.failure,
        rollouts=parent.rollouts,
        past=past,
        trajectories=view.seeds.trajectories.get(parent.env, UNSET),
    )


def _direction(mean: float) -> Direction:
    """Simpler where the solver keeps failing, harder where it succeeds (paper 3.1)."""
    if mean > 0.6:
        return Direction.harder
    return Direction.simpler if mean < 0.4 else Direction.new


def _issue(view: View) -> list[Message]:
    """Requests for the next planned slots, in slot order, at most `open_max` open."""
    run, _ = _known(view)
    room = run.science.proposal.open_max - view.book.open()
    waiting = [slot for slot, state in sorted(view.book.slots.items()) if state.stage is Stage.planned]
    said: list[Message] = []
    for slot in waiting[: max(0, room)]:
        said.append(_request(view, slot, view.book.slots[slot], 0, None))
    return said


def _request(view: View, slot: int, state: SlotState, revision: int, evidence: Evidence | None) -> EnvRequested:
    """The request, with the roster entry bound now; from this position of the log on the slot counts as requested."""
    run, checkpoint = _known(view)
    request = EnvRequested(
        round=view.book.round,
        slot=slot,
        revision=revision,
        assignment=state.assignment,
        entry=view.bound.get(slot) or _entry(view, slot),
        pool_version=view.pool_version,
        checkpoint_version=checkpoint[0],
        memory=view.memory,
        evidence=evidence,
    )
    view.book.fold(request)
    if run.science.proposal.paired:
        view.bound[slot] = request.entry
    return request


def _entry(view: View, slot: int) -> RosterEntry:
    twin = _twin(view, slot)
    if twin is not None:
        return for_pair(_entries(view), slot // 2, view.bound.get(twin))
    return by_share(_entries(view), slot)


def _entries(view: View) -> tuple[RosterEntry, ...]:
    change = in_force(view.roster, Role.proposer, view.book.round)
    return change.entries if change else (RosterEntry(name="procedural", model="procedural"),)


def _twin(view: View, slot: int) -> int | None:
    """The slot that has the same assignment, so that two entries can be compared on it."""
    run, _ = _known(view)
    ours, other = view.book.slots.get(slot), view.book.slots.get(slot ^ 1)
    if not run.science.proposal.paired or ours is None or other is None or ours.assignment != other.assignment:
        return None
    return slot ^ 1


def _evidence(body: Any) -> Evidence:
    match body:
        case EnvValidated(verdict=Verdict.invalid):
            failed = next((gate for gate in body.gates if gate.outcome is GateOutcome.failed), None)
            detail = f"{failed.gate}: {failed.detail}" if failed else "invalid"
            return Evidence(kind="gate", detail=detail, env=body.env)
        case EnvCalibrated():
            return Evidence(
                kind="calibration",
                detail=body.outcome.value,
                env=body.env,
                mean=body.mean,
                commonest_failure=body.commonest_failure,
            )
        case _:
            raise TypeError(f"{type(body).__name__} is no evidence")


def _known(view: View) -> tuple[RunStarted, tuple[int, str]]:
    """The run and the solver's checkpoint, which stand in the log before anything is planned."""
    if view.run is None or view.checkpoint is None:
        raise ValueError("the log plans a round before RunStarted and version 0 of the solver")
    return view.run, view.checkpoint
