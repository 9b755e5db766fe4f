"""What passed the gates once goes through them again when it is due, and leaves the pool when it no longer holds."""

import msgspec

from schemas.messages import (
    EnvAbandoned,
    EnvImported,
    EnvRecalled,
    EnvRechecked,
    EnvRecheckRequested,
    EnvRequested,
    Message,
    PoolChanged,
    RoundPlanned,
    WorkParked,
)
from schemas.outcomes import Abandoned, Direction, GateOutcome, Retired, Role, Verdict
from schemas.parts import Assignment, GateResult, PoolEntry, RosterEntry, Slot
from schemas.rot import DETAIL_CHARS_MAX
from services.validator import policy
from tests.support.feeding import feed
from tests.support.script import fake_digest
from tests.support.wheel import opening, small_science

ENTRY = RosterEntry(name="procedural", model="procedural")
ORDER = Assignment(direction=Direction.new, domain="files", seed=1)
OLD, GOOD = fake_digest("old"), fake_digest("good")
FLAKY = GateResult(gate="not flaky", outcome=GateOutcome.failed, detail="other results of x")


def planned(round_: int, *, wave: int = 0, waves_left: int = 0) -> RoundPlanned:
    return RoundPlanned(
        round=round_,
        wave=wave,
        target=1,
        waves_left=waves_left,
        slots=(Slot(slot=wave, assignment=ORDER),),
        checkpoint_version=0,
        checkpoint=fake_digest("cold start"),
        pool_version=round_,
        memory=(),
    )


def abandoned(round_: int) -> list[Message]:
    """The only slot of the round comes to nothing: the pool is due."""
    asked = EnvRequested(
        round=round_, slot=0, revision=0, assignment=ORDER, entry=ENTRY, pool_version=0, checkpoint_version=0, memory=()
    )
    return [
        asked,
        EnvAbandoned(round=round_, slot=0, revision=0, reason=Abandoned.no_submission, entry=ENTRY),
    ]


def rechecked(env: str, ordinal: int, verdict: Verdict, *gates: GateResult) -> EnvRechecked:
    return EnvRechecked(round=ordinal, env=env, ordinal=ordinal, verdict=verdict, gates=gates)


def with_pool(every: int, *envs: str) -> policy.View:
    """Members since round 0, and rounds in which they go through the gates again."""
    view = policy.initial()
    science = small_science()
    pool = msgspec.structs.replace(science.pool, recheck_every_rounds=every, review_every_updates=99)
    feed(policy, view, *opening(science=msgspec.structs.replace(science, pool=pool)), planned(0))
    entries = tuple(PoolEntry(env=env, round=0, slot=slot) for slot, env in enumerate(envs))
    feed(policy, view, PoolChanged(pool_version=1, members=tuple(sorted(envs)), added=entries, retired=()))
    return view


def asked(said: list[Message]) -> list[str]:
    return [body.env for body in said if isinstance(body, EnvRecheckRequested)]


def pool_of(said: list[Message]) -> PoolChanged:
    (pool,) = (body for body in said if isinstance(body, PoolChanged))
    return pool


def test_by_default_nothing_is_checked_again() -> None:
    view = with_pool(0, OLD)
    assert feed(policy, view, planned(1)) == []
    assert pool_of(feed(policy, view, *abandoned(1))).members == (OLD,)


def test_a_member_is_due_so_many_rounds_after_it_last_passed() -> None:
    view = with_pool(2, OLD)
    assert asked(feed(policy, view, planned(1))) == []
    feed(policy, view, *feed(policy, view, *abandoned(1)))
    said = feed(policy, view, planned(2))
    assert said == [EnvRecheckRequested(round=2, env=OLD, ordinal=2, base_digest=fake_digest("base"), cause="aged")]
    feed(policy, view, *abandoned(2))
    feed(policy, view, *feed(policy, view, rechecked(OLD, 2, Verdict.valid)))
    assert asked(feed(policy, view, planned(3))) == []
    feed(policy, view, *feed(policy, view, *abandoned(3)))
    assert asked(feed(policy, view, planned(4))) == [OLD]


def test_the_pool_waits_for_rechecks_and_retires_what_no_longer_holds() -> None:
    view = with_pool(1, OLD, GOOD)
    assert asked(feed(policy, view, planned(1))) == sorted((OLD, GOOD))
    assert feed(policy, view, *abandoned(1)) == []
    assert feed(policy, view, rechecked(OLD, 1, Verdict.invalid, FLAKY)) == []
    pool = pool_of(feed(policy, view, rechecked(GOOD, 1, Verdict.valid)))
    assert pool.members == (GOOD,)
    assert [(each.env, each.reason, each.detail) for each in pool.retired] == [
        (OLD, Retired.rotted, "not flaky: other results of x")
    ]


def test_a_second_wave_asks_for_no_second_recheck() -> None:
    view = with_pool(1, OLD)
    assert asked(feed(policy, view, planned(1, waves_left=1))) == [OLD]
    feed(policy, view, *abandoned(1))
    assert asked(feed(policy, view, planned(1, wave=1))) == []
    assert view.rot.open == {(OLD, 1)}


def test_a_recheck_that_nobody_could_carry_out_retires_nothing_and_is_due_again() -> None:
    view = with_pool(3, OLD)
    for round_ in (1, 2):
        feed(policy, view, planned(round_))
        feed(policy, view, *feed(policy, view, *abandoned(round_)))
    (request,) = feed(policy, view, planned(3))
    feed(policy, view, request, *abandoned(3))
    parked = WorkParked(role=Role.validator, work_id=request.id, try_=4, subject="s", reason="no luck")
    answer = feed(policy, view, parked)
    assert answer == [rechecked(OLD, 3, Verdict.infra_failed)]
    pool = pool_of(feed(policy, view, *answer))
    assert (pool.members, pool.retired) == ((OLD,), ())
    feed(policy, view, pool)
    assert asked(feed(policy, view, planned(4))) == [OLD]


def test_what_the_operator_takes_back_leaves_at_the_next_pool_and_for_good() -> None:
    view = with_pool(1, OLD)
    feed(policy, view, planned(1))
    recall = EnvRecalled(ordinal=0, env=OLD, base_digest="ab" * 32, gates=(FLAKY,))
    feed(policy, view, recall, rechecked(OLD, 1, Verdict.valid))
    pool = pool_of(feed(policy, view, *abandoned(1)))
    assert pool.members == ()
    assert [(each.reason, each.detail) for each in pool.retired] == [
        (Retired.rotted, "on base abababababab: not flaky: other results of x")
    ]


def test_a_member_that_is_imported_anew_and_fails_is_retired_too() -> None:
    view = with_pool(0, OLD)
    imported = EnvImported(ordinal=0, env=OLD, source="here", licence="CC0-1.0")
    failed = EnvRechecked(env=OLD, ordinal=0, verdict=Verdict.invalid, gates=(FLAKY,))
    feed(policy, view, imported, failed, planned(1))
    assert [each.reason for each in pool_of(feed(policy, view, *abandoned(1))).retired] == [Retired.rotted]


def test_an_import_that_is_given_up_is_answered() -> None:
    view = with_pool(0, OLD)
    imported = EnvImported(ordinal=5, env=GOOD, source="here", licence="CC0-1.0")
    parked = WorkParked(role=Role.validator, work_id=imported.id, try_=4, subject="s", reason="no luck")
    assert feed(policy, view, imported, parked) == [
        EnvRechecked(env=GOOD, ordinal=5, verdict=Verdict.infra_failed, gates=())
    ]


def test_a_reason_is_bounded_whatever_a_gate_says() -> None:
    view = with_pool(0, OLD)
    wordy = msgspec.structs.replace(FLAKY, detail="x" * 2000)
    feed(policy, view, EnvRecalled(ordinal=0, env=OLD, base_digest="ab" * 32, gates=(wordy,)), planned(1))
    (leaving,) = pool_of(feed(policy, view, *abandoned(1))).retired
    assert len(leaving.detail) == DETAIL_CHARS_MAX
