"""Calibration, review and the pool follow the rules of the paper, in slot order."""

from collections.abc import Sequence
from itertools import permutations

import msgspec
import pytest

from schemas.messages import (
    CheckpointPublished,
    EnvCalibrated,
    EnvProposed,
    EnvRequested,
    EnvValidated,
    Message,
    PoolChanged,
    RolloutCompleted,
    RolloutRequested,
    RoundPlanned,
    UpdatePlanned,
    WorkParked,
)
from schemas.outcomes import (
    Calibration,
    CheckpointReason,
    Direction,
    Purpose,
    Retired,
    Role,
    RolloutOutcome,
    Verdict,
)
from schemas.parked import masked_rollout
from schemas.parts import Assignment, PoolEntry, RosterEntry, Slot, Usage
from services.validator import policy
from tests.support.feeding import feed
from tests.support.script import fake_digest
from tests.support.wheel import opening, small_science

ENTRY = RosterEntry(name="procedural", model="procedural")
ORDER = Assignment(direction=Direction.new, domain="files", seed=1)


def env(slot: int) -> str:
    return fake_digest("env", slot)


def planned(slots: int, *, round_: int = 0, waves_left: int = 0) -> RoundPlanned:
    return RoundPlanned(
        round=round_,
        wave=0,
        target=slots,
        waves_left=waves_left,
        slots=tuple(Slot(slot=slot, assignment=ORDER) for slot in range(slots)),
        checkpoint_version=0,
        checkpoint=fake_digest("cold start"),
        pool_version=round_,
        memory=(),
    )


def requested(slot: int, *, round_: int = 0, revision: int = 0) -> EnvRequested:
    return EnvRequested(
        round=round_,
        slot=slot,
        revision=revision,
        assignment=ORDER,
        entry=ENTRY,
        pool_version=0,
        checkpoint_version=0,
        memory=(),
    )


def proposed(slot: int, *, round_: int = 0, revision: int = 0) -> EnvProposed:
    return EnvProposed(
        round=round_,
        slot=slot,
        revision=revision,
        env=env(slot),
        parent=None,
        cited=(),
        entry=ENTRY,
        checkpoint=None,
        transcript=fake_digest("t"),
        usage=Usage(),
        pool_version=0,
    )


def valid(slot: int, *, round_: int = 0, sketch: str | None = None) -> EnvValidated:
    return EnvValidated(
        round=round_,
        slot=slot,
        revision=0,
        env=env(slot),
        verdict=Verdict.valid,
        gates=(),
        sketch=sketch or f"{slot:08x}",
    )


def attempts(request: RolloutRequested, rewards: Sequence[float | None]) -> list[Message]:
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
            tests={"sort__order": reward == 1},
            content=fake_digest("c"),
        )
        for attempt, reward in enumerate(rewards)
    ]


def to_calibration(view: policy.View, slot: int, *, round_: int = 0) -> RolloutRequested:
    said = feed(policy, view, requested(slot, round_=round_), proposed(slot, round_=round_), valid(slot, round_=round_))
    assert [type(body) for body in said] == [RolloutRequested]
    assert isinstance(said[0], RolloutRequested)
    return said[0]


def begun(slots: int = 1) -> policy.View:
    view = policy.initial()
    feed(policy, view, *opening(), planned(slots))
    return view


@pytest.mark.parametrize(
    ("rewards", "outcome"),
    [
        ([0.0, 0.5, 0.5, 1.0], Calibration.admitted),
        ([0.5, 0.5, 0.5, 0.5], Calibration.flat),
        ([1.0, 1.0, 1.0, 0.9], Calibration.too_easy),
        ([0.0, 0.0, 0.0, 0.2], Calibration.too_hard),
        ([0.5, None, None, None], Calibration.infra_failed),
    ],
)
def test_four_attempts_decide_where_the_mean_is_far_from_an_edge(
    rewards: list[float | None], outcome: Calibration
) -> None:
    view = begun()
    request = to_calibration(view, 0)
    assert request.attempts == 4
    assert request.purpose is Purpose.calibrate
    said = feed(policy, view, *attempts(request, rewards))
    calibrated = next(body for body in said if isinstance(body, EnvCalibrated))
    assert calibrated.outcome is outcome
    assert calibrated.count == sum(reward is not None for reward in rewards)


def test_a_mean_near_an_edge_gets_four_more_and_all_eight_count() -> None:
    view = begun()
    request = to_calibration(view, 0)
    more = feed(policy, view, *attempts(request, [1.0, 1.0, 1.0, 0.0]))
    assert [(r.ordinal, r.attempts) for r in more if isinstance(r, RolloutRequested)] == [(1, 4)]
    assert isinstance(more[0], RolloutRequested)
    said = feed(policy, view, *attempts(more[0], [0.0, 0.0, 0.0, 1.0]))
    calibrated = next(body for body in said if isinstance(body, EnvCalibrated))
    assert (calibrated.count, calibrated.mean, calibrated.outcome) == (8, 0.5, Calibration.admitted)
    assert calibrated.commonest_failure == "sort__order"


def admit(view: policy.View, slot: int, *, round_: int = 0) -> list[Message]:
    request = to_calibration(view, slot, round_=round_)
    said = feed(policy, view, *attempts(request, [0.0, 1.0, 0.0, 1.0]))
    return feed(policy, view, *said)


def test_the_pool_waits_for_every_slot_and_lists_members_sorted() -> None:
    view = begun(2)
    assert admit(view, 1) == []
    said = admit(view, 0)
    pool = next(body for body in said if isinstance(body, PoolChanged))
    assert pool.members == tuple(sorted((env(0), env(1))))
    assert [entry.slot for entry in pool.added] == [0, 1]


def test_of_two_alike_in_one_round_the_lower_slot_stays_whoever_came_first() -> None:
    view = begun(2)
    twin = "0000000a" * 8
    said: list[Message] = []
    for slot in (1, 0):
        said = feed(policy, view, requested(slot), proposed(slot), valid(slot, sketch=twin))
        assert isinstance(said[0], RolloutRequested)
        said = feed(policy, view, *attempts(said[0], [0.0, 1.0, 0.0, 1.0]))
        said = feed(policy, view, *said)
    pool = next(body for body in said if isinstance(body, PoolChanged))
    assert pool.members == (env(0),)
    assert [(entry.env, entry.reason) for entry in pool.retired] == [(env(1), Retired.duplicate)]


def test_the_pool_takes_no_more_than_its_target_and_the_lower_slots_go_first() -> None:
    view = policy.initial()
    science = small_science()
    small = msgspec.structs.replace(science, pool=msgspec.structs.replace(science.pool, target=2))
    feed(policy, view, *opening(science=small), planned(3))
    said = [admit(view, slot) for slot in (2, 1, 0)][-1]
    pool = next(body for body in said if isinstance(body, PoolChanged))
    assert [entry.slot for entry in pool.added] == [0, 1]
    assert pool.members == tuple(sorted((env(0), env(1))))


def trained(env_: str, version: int, rewards: Sequence[float]) -> list[Message]:
    request = RolloutRequested(
        env=env_,
        checkpoint_version=version,
        checkpoint=fake_digest("k", version),
        purpose=Purpose.train,
        attempts=len(rewards),
        seed=1,
    )
    return attempts(request, rewards)


def updated(update: int) -> UpdatePlanned:
    return UpdatePlanned(
        role=Role.solver,
        update=update,
        parent_version=update - 1,
        checkpoint=fake_digest("k"),
        state=None,
        groups=(),
        dropped=(),
        seed=1,
    )


def published(version: int) -> CheckpointPublished:
    return CheckpointPublished(
        role=Role.solver,
        checkpoint_version=version,
        checkpoint=fake_digest("k", version),
        state=None,
        parent=None,
        reason=CheckpointReason.update,
        metrics={},
    )


def with_pool(*envs: str) -> policy.View:
    view = begun()
    entries = tuple(PoolEntry(env=e, round=0, slot=slot) for slot, e in enumerate(envs))
    feed(policy, view, PoolChanged(pool_version=1, members=tuple(sorted(envs)), added=entries, retired=()))
    return view


def test_a_due_review_retires_what_left_the_band_on_rollouts_already_made() -> None:
    easy, good = fake_digest("easy"), fake_digest("good")
    view = with_pool(easy, good)
    feed(policy, view, *trained(easy, 1, [1, 1, 1, 1]), *trained(good, 1, [1, 0, 1, 0]), updated(1), updated(2))
    assert feed(policy, view, planned(1, round_=1)) == []
    said = admit(view, 0, round_=1)
    pool = next(body for body in said if isinstance(body, PoolChanged))
    assert [(entry.env, entry.reason) for entry in pool.retired] == [(easy, Retired.too_easy)]
    assert set(pool.members) == {good, env(0)}


def test_a_review_asks_afresh_only_where_there_are_too_few_and_the_pool_waits_for_it() -> None:
    known, unknown = fake_digest("known"), fake_digest("unknown")
    view = with_pool(known, unknown)
    feed(policy, view, *trained(known, 1, [1, 0, 1, 0]), updated(1), updated(2), published(2))
    asked = feed(policy, view, planned(1, round_=1))
    assert [(r.env, r.purpose) for r in asked if isinstance(r, RolloutRequested)] == [(unknown, Purpose.review)]
    assert admit(view, 0, round_=1) == []
    assert isinstance(asked[0], RolloutRequested)
    said = feed(policy, view, *attempts(asked[0], [0.0, 0.0, 0.0, 0.0]))
    pool = next(body for body in said if isinstance(body, PoolChanged))
    assert [(entry.env, entry.reason) for entry in pool.retired] == [(unknown, Retired.too_hard)]


SUM_BY_ORDER = (0.6, 1.0, 0.8, 0.6)
"""The mean is 0.75, the edge of the band, and in some orders of summing a little more."""


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_a_review_does_not_hang_on_the_order_in_which_rollouts_came(order: tuple[int, ...]) -> None:
    known, unknown = fake_digest("known"), fake_digest("unknown")
    view = with_pool(known, unknown)
    rewards = [SUM_BY_ORDER[place] for place in order]
    feed(policy, view, *trained(known, 1, rewards), updated(1), updated(2), published(2))
    (asked,) = feed(policy, view, planned(1, round_=1))
    admit(view, 0, round_=1)
    assert isinstance(asked, RolloutRequested)
    answers = attempts(asked, SUM_BY_ORDER)
    said = feed(policy, view, *(answers[place] for place in order))
    pool = next(body for body in said if isinstance(body, PoolChanged))
    assert set(pool.members) == {known, unknown, env(0)}


def seeds_of(run_seed: int) -> dict[str, int]:
    """Of two calibrations, of one of them its second half, and of a review, by id."""
    view = policy.initial()
    feed(policy, view, *opening(run_seed), planned(2))
    first, second = (to_calibration(view, slot) for slot in range(2))
    asked = [first, second, *feed(policy, view, *attempts(first, [1.0, 1.0, 1.0, 0.0]))]
    old = fake_digest("old")
    pool = PoolChanged(pool_version=1, members=(old,), added=(PoolEntry(env=old, round=0, slot=0),), retired=())
    asked += feed(policy, view, pool, updated(1), updated(2), published(2), planned(1, round_=1))
    return {body.id: body.seed for body in asked if isinstance(body, RolloutRequested)}


def test_every_seed_follows_from_the_runs_own_and_from_what_it_is_for() -> None:
    one, other = seeds_of(7), seeds_of(8)
    assert one.keys() == other.keys()
    assert len(one) == 4
    assert len({*one.values(), *other.values()}) == 2 * len(one)


def test_no_review_before_it_is_due() -> None:
    easy = fake_digest("easy")
    view = with_pool(easy)
    feed(policy, view, *trained(easy, 1, [1, 1, 1, 1]), updated(1))
    feed(policy, view, planned(1, round_=1))
    pool = next(body for body in admit(view, 0, round_=1) if isinstance(body, PoolChanged))
    assert easy in pool.members


def test_an_environment_that_cannot_be_graded_is_retired_as_quarantined() -> None:
    sick = fake_digest("sick")
    view = with_pool(sick)
    request = RolloutRequested(
        env=sick, checkpoint_version=1, checkpoint=fake_digest("k"), purpose=Purpose.train, attempts=2, seed=1
    )
    feed(policy, view, masked_rollout(request, 0, "no reward", broken=True), planned(1, round_=1))
    pool = next(body for body in admit(view, 0, round_=1) if isinstance(body, PoolChanged))
    assert [(entry.env, entry.reason) for entry in pool.retired] == [(sick, Retired.quarantined)]


def test_parked_validation_is_given_up_and_ends_the_slot() -> None:
    view = begun()
    feed(policy, view, requested(0), proposed(0))
    parked = WorkParked(role=Role.validator, work_id=proposed(0).id, try_=4, subject="s", reason="no luck")
    answer = feed(policy, view, parked)
    assert isinstance(answer[0], EnvValidated)
    assert answer[0].verdict is Verdict.infra_failed
    assert isinstance(feed(policy, view, *answer)[0], PoolChanged)


def test_with_parked_set_to_wait_nothing_is_given_up() -> None:
    view = policy.initial()
    waiting = small_science(failures=type(small_science().failures)(parked="wait"))
    feed(policy, view, *opening(science=waiting), planned(1), requested(0), proposed(0))
    parked = WorkParked(role=Role.validator, work_id=proposed(0).id, try_=4, subject="s", reason="no luck")
    assert feed(policy, view, parked) == []
