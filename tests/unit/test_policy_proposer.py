"""The proposer's plans answer to what the solver did."""

import msgspec

from schemas.codec import encode
from schemas.envelope import Meta
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
    RosterChanged,
    RoundClosed,
    RoundPlanned,
    WorkParked,
)
from schemas.outcomes import (
    Abandoned,
    Calibration,
    CheckpointReason,
    Direction,
    GateOutcome,
    Purpose,
    Role,
    RolloutOutcome,
    Verdict,
)
from schemas.parts import Assignment, CitedRollout, GateResult, PoolEntry, RosterEntry, Slot, Usage
from schemas.science import PoolRules, ProposalRules
from services.kernel.harbor.reward import TEST_RESULTS_BYTES_MAX, parse_ctrf
from services.kernel.log import ENTRY_BYTES_MAX
from services.proposer import policy
from tests.support.feeding import feed
from tests.support.script import fake_digest
from tests.support.wheel import Wheel, opening, small_science

A, B = fake_digest("env a"), fake_digest("env b")


def version_0() -> CheckpointPublished:
    return CheckpointPublished(
        role=Role.solver,
        checkpoint_version=0,
        checkpoint=fake_digest("cold start"),
        state=None,
        parent=None,
        reason=CheckpointReason.cold_start,
        metrics={},
    )


def rollout(env: str, attempt: int, reward: float, failing: str) -> RolloutCompleted:
    return RolloutCompleted(
        request=fake_digest("request", env),
        attempt=attempt,
        env=env,
        purpose=Purpose.train,
        checkpoint_version=1,
        outcome=RolloutOutcome.solved if reward == 1 else RolloutOutcome.unsolved,
        reward=reward,
        tests={failing: reward == 1, "always__there": True},
        content=fake_digest("content", env, attempt),
    )


def round_one(rewards: dict[str, list[float]], failing: dict[str, str]) -> RoundPlanned:
    """The plan of round 1 after these rollouts on a pool of A and B."""
    view = policy.initial()
    pool = PoolChanged(
        pool_version=1,
        members=tuple(sorted((A, B))),
        added=(PoolEntry(env=A, round=0, slot=0), PoolEntry(env=B, round=0, slot=1)),
        retired=(),
    )
    rollouts = [
        rollout(env, attempt, reward, failing[env]) for env in (A, B) for attempt, reward in enumerate(rewards[env])
    ]
    closed = RoundClosed(counts={}, digest="", memory="")
    said = feed(policy, view, *opening(), version_0(), pool, *rollouts, closed)
    plans = [body for body in said if isinstance(body, RoundPlanned)]
    return next(plan for plan in plans if plan.round == 1)


def directions(plan: RoundPlanned) -> dict[str | None, Direction]:
    return {slot.assignment.parent: slot.assignment.direction for slot in plan.slots}


def test_solver_results_swapped_between_two_parents_swap_their_directions() -> None:
    failing = {A: "sort__order", B: "sort__order"}
    strong, weak = [1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]
    plain = directions(round_one({A: strong, B: weak}, failing))
    swapped = directions(round_one({A: weak, B: strong}, failing))
    assert (plain[A], plain[B]) == (Direction.harder, Direction.simpler)
    assert (swapped[A], swapped[B]) == (Direction.simpler, Direction.harder)


def test_tries_of_an_author_say_nothing_about_a_parent() -> None:
    view = policy.initial()
    pool = PoolChanged(pool_version=1, members=(A,), added=(PoolEntry(env=A, round=0, slot=0),), retired=())
    tried = [
        msgspec.structs.replace(rollout(A, place, 1.0, "z"), purpose=Purpose.draft, request="t") for place in range(8)
    ]
    trained = [rollout(A, place, reward, "x") for place, reward in enumerate((1.0, 0.0))]
    closed = RoundClosed(counts={}, digest="", memory="")
    said = feed(policy, view, *opening(), version_0(), pool, *tried, *trained, *tried, closed)
    plan = next(body for body in said if isinstance(body, RoundPlanned) and body.round == 1)
    rates = {slot.assignment.parent: slot.assignment.pass_rate for slot in plan.slots if slot.assignment.parent}
    assert rates == {A: 0.5}


def test_equal_pass_rates_with_another_commonest_failure_name_that_failure() -> None:
    rewards = {A: [1.0, 0.0], B: [1.0, 0.0]}
    plan = round_one(rewards, {A: "sort__order", B: "grep__lines"})
    named = {s.assignment.parent: s.assignment.commonest_failure for s in plan.slots}
    assert named[A] == "sort__order"
    assert named[B] == "grep__lines"


def test_every_fourth_slot_has_no_parent_and_cites_nothing() -> None:
    plan = round_one({A: [1.0, 0.0], B: [1.0, 0.0]}, {A: "x__y", B: "x__y"})
    orphans = [slot for slot in plan.slots if slot.assignment.parent is None]
    assert [slot.slot % 4 for slot in orphans] == [3]
    assert orphans[0].assignment.rollouts == ()
    cited = next(slot for slot in plan.slots if slot.assignment.parent == A).assignment.rollouts
    assert {ref.reward for ref in cited} == {0.0, 1.0}


def requested(said: list[Message]) -> list[EnvRequested]:
    return [body for body in said if isinstance(body, EnvRequested)]


def proposed(request: EnvRequested) -> EnvProposed:
    return EnvProposed(
        round=request.round,
        slot=request.slot,
        revision=request.revision,
        env=fake_digest("env", request.slot, request.revision),
        parent=None,
        cited=(),
        entry=request.entry,
        checkpoint=None,
        transcript=fake_digest("t"),
        usage=Usage(),
        pool_version=0,
    )


def plan_first_round(view: policy.View) -> list[EnvRequested]:
    said = feed(policy, view, *opening(), version_0())
    return requested(feed(policy, view, *said))


def seeds_of(run_seed: int) -> dict[int, int]:
    said = feed(policy, policy.initial(), *opening(run_seed), version_0())
    return {slot.slot: slot.assignment.seed for body in said if isinstance(body, RoundPlanned) for slot in body.slots}


def test_every_seed_follows_from_the_runs_own_and_from_what_it_is_for() -> None:
    one, other = seeds_of(7), seeds_of(8)
    assert one.keys() == other.keys() == {0, 1, 2, 3}
    assert len({*one.values(), *other.values()}) == 8


def test_at_most_open_max_slots_are_open_and_they_are_issued_in_order() -> None:
    view = policy.initial()
    first = plan_first_round(view)
    assert [request.slot for request in first] == [0, 1, 2]
    abandoned = EnvAbandoned(slot=1, revision=0, reason=Abandoned.no_submission, entry=first[1].entry)
    assert [request.slot for request in requested(feed(policy, view, abandoned))] == [3]


def test_an_invalid_draft_is_asked_for_again_with_the_failed_gate_as_evidence() -> None:
    view = policy.initial()
    first = plan_first_round(view)[0]
    verdict = EnvValidated(
        slot=0,
        revision=0,
        env=proposed(first).env,
        verdict=Verdict.invalid,
        gates=(GateResult(gate="oracle passes", outcome=GateOutcome.failed, detail="reward 0.5"),),
    )
    revision = requested(feed(policy, view, proposed(first), verdict))
    assert [(r.slot, r.revision) for r in revision] == [(0, 1)]
    assert revision[0].evidence is not None
    assert revision[0].evidence.detail == "oracle passes: reward 0.5"


def test_revisions_end_at_their_bound_and_the_slot_is_done() -> None:
    science = small_science(proposal=ProposalRules(open_max=1, revisions_max=1))
    view = policy.initial()
    request = requested(feed(policy, view, *feed(policy, view, *opening(science=science), version_0())))[0]
    slots = []
    for _ in range(2):
        hard = EnvCalibrated(
            slot=request.slot,
            revision=request.revision,
            env=proposed(request).env,
            outcome=Calibration.too_hard,
            mean=0.0,
            std=0.0,
            count=4,
            rollouts=(),
        )
        valid = EnvValidated(
            slot=request.slot, revision=request.revision, env=hard.env, verdict=Verdict.valid, gates=()
        )
        request = requested(feed(policy, view, proposed(request), valid, hard))[0]
        slots.append((request.slot, request.revision))
    assert slots == [(0, 1), (1, 0)]


def swap(entry: str, ordinal: int, from_round: int | None = None) -> RosterChanged:
    entries = (RosterEntry(name=entry, model=entry),)
    return RosterChanged(ordinal=ordinal, role=Role.proposer, entries=entries, from_round=from_round)


def test_a_swap_takes_effect_at_the_next_request_issued() -> None:
    view = policy.initial()
    first = plan_first_round(view)
    assert {request.entry.name for request in first} == {"procedural"}
    abandoned = EnvAbandoned(slot=0, revision=0, reason=Abandoned.refused, entry=first[0].entry)
    after = requested(feed(policy, view, swap("procedural-b", 1), abandoned))
    assert [request.entry.name for request in after] == ["procedural-b"]


def test_a_swap_from_a_round_leaves_the_rounds_before_alone() -> None:
    events = Wheel().turn([*opening(), swap("procedural-b", 1, from_round=1)])
    by_round: dict[int, set[str]] = {}
    for event in events:
        if isinstance(event.body, EnvRequested):
            by_round.setdefault(event.body.round, set()).add(event.body.entry.name)
    assert by_round == {0: {"procedural"}, 1: {"procedural-b"}, 2: {"procedural-b"}}


def test_shares_hold_over_the_slots_of_a_round() -> None:
    view = policy.initial()
    plan_first_round(view)
    view.roster = [
        RosterChanged(
            ordinal=1,
            role=Role.proposer,
            entries=(RosterEntry(name="a", model="a", share=3), RosterEntry(name="b", model="b", share=1)),
        )
    ]
    names = [policy._entry(view, slot).name for slot in range(100)]
    assert names.count("b") in range(22, 29)


def test_a_parked_request_is_given_up_as_infra_failed() -> None:
    view = policy.initial()
    first = plan_first_round(view)[0]
    feed(policy, view, first)
    parked = WorkParked(role=Role.proposer, work_id=first.id, try_=4, subject="s", reason="no luck")
    answer = feed(policy, view, parked)
    assert [type(body) for body in answer] == [EnvAbandoned]
    assert isinstance(answer[0], EnvAbandoned)
    assert answer[0].reason is Abandoned.infra_failed


def test_the_largest_plan_that_settings_and_verifiers_allow_is_one_message() -> None:
    named = [{"name": f"{n:0195}", "status": "failed"} for n in range(20)]
    tests = parse_ctrf(msgspec.json.encode({"results": {"tests": named}}))
    assert TEST_RESULTS_BYTES_MAX - 200 < len(msgspec.json.encode(tests)) <= TEST_RESULTS_BYTES_MAX
    cited = CitedRollout(id=fake_digest(1), content=fake_digest(2), reward=1 / 3, tests=tests)
    order = Assignment(
        direction=Direction.new,
        domain="any",
        seed=2**63,
        parent=fake_digest(3),
        rollouts=(cited,) * bound(ProposalRules, "cited_max"),
        past=(fake_digest(4),) * 8,
    )
    slots = tuple(Slot(slot=slot, assignment=order) for slot in range(bound(PoolRules, "admit_per_round")))
    plan = RoundPlanned(
        round=1,
        wave=0,
        target=len(slots),
        waves_left=0,
        slots=slots,
        checkpoint_version=0,
        checkpoint=fake_digest(5),
        pool_version=1,
        memory=(fake_digest(6),) * 10_000,
    )
    assert len(slots) == 64
    assert ENTRY_BYTES_MAX / 2 < len(encode(plan, Meta())) < ENTRY_BYTES_MAX


def bound(kind: type[msgspec.Struct], name: str) -> int:
    """The largest value that a setting may have."""
    most = next(field.type for field in msgspec.structs.fields(kind) if field.name == name).__metadata__[0].le
    assert isinstance(most, int)
    return most
