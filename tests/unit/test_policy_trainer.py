"""Waves of groups, what is dropped and why, and the end of rounds."""

from collections.abc import Sequence

from schemas.identity import permutation
from schemas.messages import (
    CheckpointPublished,
    Message,
    PoolChanged,
    RolloutCompleted,
    RolloutRequested,
    RoundClosed,
    RunFinished,
    UpdatePlanned,
    WorkParked,
)
from schemas.outcomes import CheckpointReason, Dropped, Purpose, Role, RolloutOutcome
from schemas.parked import masked_rollout
from schemas.science import EvaluationRules, TrainingRules
from services.trainer import policy
from tests.support.feeding import feed
from tests.support.script import fake_digest
from tests.support.wheel import Wheel, opening, small_science

ENVS = tuple(sorted(fake_digest("env", n) for n in range(6)))
SIGNAL, NONE, BARE = (1.0, 0.0, 1.0, 0.0), (1.0, 1.0, 1.0, 1.0), (1.0, None, None, None)
QUIET = EvaluationRules(near_attempts=0, far_attempts=0)


def version(number: int, reason: CheckpointReason = CheckpointReason.update) -> CheckpointPublished:
    return CheckpointPublished(
        role=Role.solver,
        checkpoint_version=number,
        checkpoint=fake_digest("k", number),
        state=None,
        parent=None,
        reason=reason,
        metrics={},
    )


def pool(*envs: str) -> PoolChanged:
    return PoolChanged(pool_version=1, members=tuple(sorted(envs)), added=(), retired=())


def answers(request: RolloutRequested, rewards: Sequence[float | None]) -> list[Message]:
    return [
        masked_rollout(request, attempt, "lost")
        if reward is None
        else RolloutCompleted(
            round=request.round,
            request=request.id,
            attempt=attempt,
            env=request.env,
            purpose=request.purpose,
            checkpoint_version=request.checkpoint_version,
            outcome=RolloutOutcome.solved if reward == 1 else RolloutOutcome.unsolved,
            reward=reward,
            tests={},
            content=fake_digest("c", request.env, attempt),
        )
        for attempt, reward in enumerate(rewards)
    ]


def begun(*, waves_max: int = 2) -> tuple[policy.View, list[RolloutRequested]]:
    rules = TrainingRules(updates_per_round=1, groups=2, attempts=4, waves_max=waves_max)
    view = policy.initial()
    science = small_science(training=rules, evaluation=QUIET, rounds=1)
    said = feed(policy, view, *opening(science=science), version(0, CheckpointReason.cold_start), pool(*ENVS))
    return view, [body for body in said if isinstance(body, RolloutRequested)]


def plan_of(said: list[Message]) -> UpdatePlanned:
    return next(body for body in said if isinstance(body, UpdatePlanned))


def test_a_wave_asks_in_the_seeded_order_of_the_pool() -> None:
    _, wave = begun()
    assert [request.env for request in wave] == permutation(ENVS, 7, "train", 1)[:2]
    assert {(request.purpose, request.attempts) for request in wave} == {(Purpose.train, 4)}


def seeds_of(run_seed: int) -> dict[str, int]:
    """Of all that is asked for and planned towards the first update, by id."""
    view = policy.initial()
    rules = TrainingRules(updates_per_round=1, groups=2, attempts=4, waves_max=1)
    science = small_science(training=rules, evaluation=EvaluationRules(near_attempts=1, far_attempts=1), rounds=1)
    began = opening(run_seed, science)
    said = feed(policy, view, *began, version(0, CheckpointReason.cold_start), pool(*ENVS[:2]))
    asked = [body for body in said if isinstance(body, RolloutRequested)]
    for request in asked:
        if request.purpose is Purpose.train:
            said += feed(policy, view, *answers(request, SIGNAL))
    return {body.id: body.seed for body in said if isinstance(body, RolloutRequested | UpdatePlanned)}


def test_every_seed_follows_from_the_runs_own_and_from_what_it_is_for() -> None:
    one, other = seeds_of(7), seeds_of(8)
    assert one.keys() == other.keys()
    assert len(one) == 3 + 2 + 1
    assert len({*one.values(), *other.values()}) == 2 * len(one)
    assert seeds_of(7) == one


def test_the_deficit_is_asked_for_and_groups_stay_in_request_order() -> None:
    view, wave = begun()
    more = feed(policy, view, *answers(wave[1], SIGNAL), *answers(wave[0], NONE))
    assert [type(body) for body in more] == [RolloutRequested]
    assert isinstance(more[0], RolloutRequested)
    assert more[0].env == permutation(ENVS, 7, "train", 1)[2]
    plan = plan_of(feed(policy, view, *answers(more[0], SIGNAL)))
    assert [group.env for group in plan.groups] == [wave[1].env, more[0].env]
    assert [(group.env, group.reason) for group in plan.dropped] == [(wave[0].env, Dropped.zero_variance)]


def test_when_no_wave_is_left_the_update_uses_what_there_is() -> None:
    view, wave = begun(waves_max=1)
    plan = plan_of(feed(policy, view, *answers(wave[0], NONE), *answers(wave[1], BARE)))
    assert plan.groups == ()
    assert {group.reason for group in plan.dropped} == {Dropped.zero_variance, Dropped.too_few}


def test_masked_members_are_left_out_of_a_group_that_is_used() -> None:
    view, wave = begun()
    plan = plan_of(feed(policy, view, *answers(wave[0], (1.0, 0.0, None, None)), *answers(wave[1], SIGNAL)))
    assert [len(group.rollouts) for group in plan.groups] == [2, 4]


def test_a_quarantined_environment_is_not_asked_for() -> None:
    view, wave = begun()
    third = permutation(ENVS, 7, "train", 1)[2]
    sick = RolloutRequested(
        env=third,
        checkpoint_version=0,
        checkpoint="",
        purpose=Purpose.calibrate,
        attempts=1,
        seed=0,
        slot=0,
        revision=0,
    )
    feed(policy, view, masked_rollout(sick, 0, "no reward", broken=True))
    more = feed(policy, view, *answers(wave[0], NONE), *answers(wave[1], SIGNAL))
    assert isinstance(more[0], RolloutRequested)
    assert more[0].env == permutation(ENVS, 7, "train", 1)[3]


def test_an_empty_pool_still_publishes_and_closes_the_round() -> None:
    view = policy.initial()
    science = small_science(training=TrainingRules(updates_per_round=1), evaluation=QUIET, rounds=1)
    said = feed(policy, view, *opening(science=science), version(0, CheckpointReason.cold_start), pool())
    assert plan_of(said).groups == ()
    closed = feed(policy, view, version(1, CheckpointReason.no_signal))
    assert [type(body) for body in closed] == [RoundClosed]
    assert [type(body) for body in feed(policy, view, *closed)] == [RunFinished]


def test_a_round_waits_for_its_evaluation() -> None:
    view = policy.initial()
    science = small_science(
        training=TrainingRules(updates_per_round=1, groups=1, attempts=2, waves_max=1),
        evaluation=EvaluationRules(near_attempts=1, far_attempts=0),
        rounds=1,
    )
    first = feed(policy, view, *opening(science=science), version(0, CheckpointReason.cold_start))
    assert [body.lane() for body in first] == ["evaluate", "evaluate"]
    train = feed(policy, view, pool(*ENVS))
    assert isinstance(train[0], RolloutRequested)
    feed(policy, view, *answers(train[0], (1.0, 0.0)))
    second = feed(policy, view, version(1))
    pending = [body for body in [*first, *second] if isinstance(body, RolloutRequested)]
    assert len(pending) == 4
    closed = [feed(policy, view, *answers(request, (1.0,))) for request in pending]
    assert [[type(body) for body in said] for said in closed] == [[], [], [], [RoundClosed]]


def test_infra_failures_mark_the_round_as_degraded() -> None:
    for rewards, degraded in (((1.0, 0.0, None, None), True), (SIGNAL, False)):
        view, wave = begun()
        feed(policy, view, *answers(wave[0], rewards), *answers(wave[1], SIGNAL))
        closed = feed(policy, view, version(1))[0]
        assert isinstance(closed, RoundClosed)
        assert closed.degraded is degraded


def test_a_parked_update_is_given_up_with_the_same_weights() -> None:
    view, wave = begun()
    plan = plan_of(feed(policy, view, *answers(wave[0], SIGNAL), *answers(wave[1], SIGNAL)))
    feed(policy, view, plan)
    parked = WorkParked(role=Role.trainer, work_id=plan.id, try_=4, subject="s", reason="no luck")
    answer = feed(policy, view, parked)[0]
    assert isinstance(answer, CheckpointPublished)
    assert (answer.checkpoint, answer.checkpoint_version) == (plan.checkpoint, 1)
    assert answer.reason is CheckpointReason.infra_failed


def test_the_operator_can_end_a_run_early() -> None:
    view, wave = begun()
    feed(policy, view, RunFinished(why="enough"))
    assert feed(policy, view, *answers(wave[0], SIGNAL), *answers(wave[1], SIGNAL)) == []


def test_memory_is_extended_in_slot_order_whatever_came_first() -> None:
    memories = set()
    for order in range(5):
        events = Wheel(order_seed=order).turn(opening())
        memories.add(tuple(event.body.memory for event in events if isinstance(event.body, RoundClosed)))
    assert len(memories) == 1
    assert len(set(memories.pop())) == 3
