"""What the trainer's decider says: waves of training groups, updates, evaluations, the end of rounds. Pure."""

from collections import Counter
from dataclasses import dataclass, field

from schemas.budget import BudgetBook, InFlight
from schemas.envelope import Event
from schemas.identity import derive_seed, list_digest, permutation, round_digest
from schemas.messages import (
    CheckpointPublished,
    EnvAbandoned,
    EnvProposed,
    Message,
    PoolChanged,
    RolloutCompleted,
    RolloutRequested,
    RoundClosed,
    RunFinished,
    RunStarted,
    UpdatePlanned,
)
from schemas.outcomes import Dropped, Purpose, Role
from schemas.parked import OpenWork
from schemas.parts import DroppedGroup, PlannedGroup, RolloutRef
from schemas.rules import enough, mean_std
from schemas.topology import counts_for_digest

VERSION = 1


@dataclass
class Group:
    request: RolloutRequested
    done: dict[int, RolloutCompleted] = field(default_factory=dict)

    def complete(self) -> bool:
        return len(self.done) >= self.request.attempts

    def scored(self) -> list[RolloutCompleted]:
        return [rollout for _, rollout in sorted(self.done.items()) if rollout.reward is not None]


@dataclass
class Collection:
    """The groups asked for towards one update, in request order."""

    update: int
    order: list[str]
    """Environments in the seeded order of the pool version."""
    groups: list[Group] = field(default_factory=list)
    wave: int = 0


@dataclass
class RoundBooks:
    """What a round's end needs: bodies for the digest, memory deltas, trouble."""

    bodies: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    deltas: dict[tuple[int, int, int], str] = field(default_factory=dict)
    degraded: bool = False


@dataclass
class View:
    run: RunStarted | None = None
    finished: bool = False
    checkpoint: CheckpointPublished | None = None
    round: int = -1
    """The round whose updates run; -1 before the first pool."""
    pool: PoolChanged | None = None
    quarantined: set[str] = field(default_factory=set)
    collecting: Collection | None = None
    open_groups: dict[str, Group] = field(default_factory=dict)
    evaluating: dict[str, Group] = field(default_factory=dict)
    """Evaluation groups that are not complete, by request."""
    books: dict[int, RoundBooks] = field(default_factory=dict)
    answered: set[tuple[int, int, int]] = field(default_factory=set)
    memory: tuple[str, ...] = ()
    trained_round: int = -1
    """The newest round with all its updates done."""
    work: OpenWork = field(default_factory=lambda: OpenWork(Role.trainer, (RunStarted, UpdatePlanned)))
    budget: BudgetBook = field(default_factory=BudgetBook)
    in_flight: InFlight = field(default_factory=InFlight)
    seen: set[str] = field(default_factory=set)
    decided: tuple[str, tuple[Message, ...]] = ("", ())


def initial() -> View:
    return View()


def fold(view: View, event: Event) -> View:
    """Take one event in. The messages that follow from it are kept for `decide`."""
    if event.id in view.seen:
        return view
    view.seen.add(event.id)
    _keep_books(view, event)
    view.decided = (event.id, tuple(_react(view, event)))
    return view


def decide(view: View, event: Event) -> list[Message]:
    """The messages that follow from the event just folded; nothing for an event that was folded before."""
    return list(view.decided[1]) if view.decided[0] == event.id else []


def _keep_books(view: View, event: Event) -> None:
    body = event.body
    if not counts_for_digest(body):
        return
    books = view.books.setdefault(body.round, RoundBooks())
    if isinstance(body, EnvProposed | EnvAbandoned):
        if (body.round, body.slot, body.revision) in view.answered:
            return
        view.answered.add((body.round, body.slot, body.revision))
        if body.memory_delta is not None:
            books.deltas[body.round, body.slot, body.revision] = body.memory_delta
    books.bodies[event.id] = event.body_digest
    books.counts[body.name] += 1
    troubles = (getattr(body, name, None) for name in ("outcome", "verdict", "reason"))
    if "infra_failed" in troubles or getattr(body, "volatile", False):
        books.degraded = True


def _react(view: View, event: Event) -> list[Message]:
    body = event.body
    said = view.work.fold(event.id, body)
    view.budget.fold(event.id, body)
    view.in_flight.fold(event.id, body)
    if view.finished:
        return []
    match body:
        case RunStarted():
            view.run = body
            view.work.give_up = body.science.failures.parked == "give_up"
        case RunFinished():
            view.finished = True
        case PoolChanged():
            view.pool, view.round = body, body.round
            said += _begin_update(view)
        case RolloutCompleted():
            said += _rollout(view, body)
        case CheckpointPublished() if body.role is Role.solver:
            said += _published(view, body)
        case RoundClosed():
            view.memory += _deltas(view, body.round)
            if body.round + 1 >= _known(view).science.rounds:
                said.append(RunFinished(round=body.round, why="all rounds are done"))
        case _:
            pass
    said = view.budget.allowed(said)
    view.in_flight.say(said)
    ended = _ended(view)
    view.in_flight.say(ended)
    return said + ended


def _ended(view: View) -> list[Message]:
    """The run's end, once its budget is spent and everything that was asked for is done."""
    if view.finished or not view.budget.spent or not view.in_flight.nothing:
        return []
    return [RunFinished(round=max(0, view.round), why="budget: all that it allows is spent")]


def _rollout(view: View, body: RolloutCompleted) -> list[Message]:
    if body.broken:
        view.quarantined.add(body.env)
    if body.request in view.evaluating:
        group = view.evaluating[body.request]
        group.done[body.attempt] = body
        if group.complete():
            del view.evaluating[body.request]
        return _maybe_close(view)
    if body.request in view.open_groups:
        group = view.open_groups[body.request]
        group.done[body.attempt] = body
        if all(group.complete() for group in view.open_groups.values()):
            view.open_groups = {}
            return _next_wave(view)
    return []


def _published(view: View, body: CheckpointPublished) -> list[Message]:
    view.checkpoint = body
    rules = _known(view).science
    for id_, work in list(view.work.messages.items()):
        if isinstance(work, RunStarted) or (isinstance(work, UpdatePlanned) and work.update == body.checkpoint_version):
            view.work.close(id_)
    if body.checkpoint_version == 0:
        return _evaluate(view, body.round)
    if body.checkpoint_version < _last_update(view):
        return _begin_update(view)
    view.trained_round = view.round
    due = (view.round + 1) % rules.evaluation.every_rounds == 0 or view.round + 1 == rules.rounds
    return (_evaluate(view, view.round) if due else []) or _maybe_close(view)


def _last_update(view: View) -> int:
    return (view.round + 1) * _known(view).science.training.updates_per_round


def _begin_update(view: View) -> list[Message]:
    """Ask for the first wave of the next update, or end the round's training where it has none."""
    run, pool, checkpoint = _known(view), view.pool, view.checkpoint
    if pool is None or checkpoint is None:
        return []
    if run.science.training.updates_per_round == 0:
        view.trained_round = view.round
        return _maybe_close(view)
    update = checkpoint.checkpoint_version + 1
    view.collecting = Collection(update, permutation(pool.members, run.seed, "train", update))
    return _ask(view, run.science.training.groups) or _plan_update(view)


def _ask(view: View, count: int) -> list[Message]:
    """Requests for the next `count` environments of the order."""
    run, collecting, checkpoint = _known(view), view.collecting, view.checkpoint
    if collecting is None or checkpoint is None:
        return []
    taken = {group.request.env for group in collecting.groups}
    ready = [env for env in collecting.order if env not in taken and env not in view.quarantined]
    requests = [
        RolloutRequested(
            round=view.round,
            env=env,
            checkpoint_version=checkpoint.checkpoint_version,
            checkpoint=checkpoint.checkpoint,
            purpose=Purpose.train,
            attempts=run.science.training.attempts,
            seed=derive_seed(run.seed, "train", collecting.update, env),
        )
        for env in ready[:count]
    ]
    groups = [Group(request) for request in requests]
    collecting.groups += groups
    collecting.wave += 1
    view.open_groups = {group.request.id: group for group in groups}
    return list(requests)


def _next_wave(view: View) -> list[Message]:
    """A wave is complete: ask for the deficit while waves are left, else plan the update with what there is."""
    run, collecting = _known(view), view.collecting
    if collecting is None:
        return []
    rules = run.science.training
    usable = sum(_reason_to_drop(group) is None for group in collecting.groups)
    if usable < rules.groups and collecting.wave < rules.waves_max and not view.budget.spent:
        requests = _ask(view, rules.groups - usable)
        if requests:
            return requests
    return _plan_update(view)


def _reason_to_drop(group: Group) -> Dropped | None:
    rewards = [rollout.reward or 0.0 for rollout in group.scored()]
    if not enough(len(rewards), group.request.attempts):
        return Dropped.too_few
    return Dropped.zero_variance if mean_std(rewards)[1] == 0.0 else None


def _plan_update(view: View) -> list[Message]:
    run, collecting, checkpoint = _known(view), view.collecting, view.checkpoint
    if collecting is None or checkpoint is None:
        return []
    used: list[PlannedGroup] = []
    dropped: list[DroppedGroup] = []
    for group in collecting.groups:
        reason = _reason_to_drop(group)
        if reason is None and len(used) >= run.science.training.groups:
            reason = Dropped.surplus
        if reason is not None:
            dropped.append(DroppedGroup(env=group.request.env, request=group.request.id, reason=reason))
            continue
        refs = tuple(
            RolloutRef(id=rollout.id, content=rollout.content or "", reward=rollout.reward or 0.0)
            for rollout in group.scored()
        )
        used.append(PlannedGroup(env=group.request.env, request=group.request.id, rollouts=refs))
    view.collecting = None
    return [
        UpdatePlanned(
            round=view.round,
            role=Role.solver,
            update=collecting.update,
            parent_version=checkpoint.checkpoint_version,
            checkpoint=checkpoint.checkpoint,
            state=checkpoint.state,
            groups=tuple(used),
            dropped=tuple(dropped),
            seed=derive_seed(run.seed, "update", collecting.update),
        )
    ]


def _evaluate(view: View, round_: int) -> list[Message]:
    """Requests for every held-out environment by the newest checkpoint."""
    run, checkpoint = _known(view), view.checkpoint
    if checkpoint is None or view.budget.spent:
        return []
    rules = run.science.evaluation
    attempts = {"near": rules.near_attempts, "far": rules.far_attempts}
    requests = [
        RolloutRequested(
            round=round_,
            env=env,
            checkpoint_version=checkpoint.checkpoint_version,
            checkpoint=checkpoint.checkpoint,
            purpose=Purpose.evaluate,
            attempts=attempts.get(heldout.name, rules.near_attempts),
            seed=derive_seed(run.seed, "evaluate", checkpoint.checkpoint_version, env),
            set_name=heldout.name,
        )
        for heldout in run.heldout
        for env in heldout.envs
        if attempts.get(heldout.name, rules.near_attempts) > 0
    ]
    view.evaluating |= {request.id: Group(request) for request in requests}
    return list(requests)


def _maybe_close(view: View) -> list[Message]:
    """The round closes once its updates and every evaluation asked for in it are done."""
    if view.round < 0 or view.trained_round < view.round or view.evaluating:
        return []
    books = view.books.setdefault(view.round, RoundBooks())
    return [
        RoundClosed(
            round=view.round,
            counts=dict(sorted(books.counts.items())),
            digest=round_digest(books.bodies),
            memory=list_digest(view.memory + _deltas(view, view.round)),
            degraded=books.degraded,
        )
    ]


def _deltas(view: View, round_: int) -> tuple[str, ...]:
    books = view.books.setdefault(round_, RoundBooks())
    return tuple(books.deltas[key] for key in sorted(books.deltas))


def _known(view: View) -> RunStarted:
    """The run, which stands first in the log."""
    if view.run is None:
        raise ValueError("the log holds work before RunStarted")
    return view.run
