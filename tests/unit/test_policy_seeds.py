"""Imports are checked and tried before a plan counts on them, and then are parents like members of the pool."""

from dataclasses import dataclass

import msgspec

from schemas.envelope import Event
from schemas.messages import (
    EnvImported,
    EnvRechecked,
    EnvRequested,
    Message,
    PoolChanged,
    RolloutRequested,
    RoundClosed,
    RoundPlanned,
    RunFinished,
)
from schemas.outcomes import Purpose, Verdict
from schemas.parked import infra_answers
from schemas.parts import Assignment
from tests.support.script import Script, fake_digest
from tests.support.wheel import Wheel, opening

GOOD, BAD, LOST = (fake_digest("import", name) for name in ("good", "bad", "lost"))
TOLD = fake_digest("trajectory")


@dataclass(frozen=True)
class Checked(Script):
    """Verdicts on imports by name."""

    def answer(self, work: Message) -> list[Message]:
        if isinstance(work, RolloutRequested) and work.env == LOST:
            return infra_answers(work)
        if not isinstance(work, EnvImported):
            return super().answer(work)
        verdict = Verdict.invalid if work.env == BAD else Verdict.valid
        return [EnvRechecked(env=work.env, ordinal=work.ordinal, verdict=verdict, gates=())]


def imported(ordinal: int, env: str, *trajectories: str) -> EnvImported:
    body = EnvImported(ordinal=ordinal, env=env, source="here", licence="CC0-1.0")
    return msgspec.structs.replace(body, trajectories=trajectories) if trajectories else body


def turn(*more: Message, order_seed: int = 0) -> list[Event]:
    return Wheel(script=Checked(), order_seed=order_seed).turn([*opening(), *more])


def orders(events: list[Event], round_: int) -> list[Assignment]:
    plans = [event.body for event in events if isinstance(event.body, RoundPlanned) and event.body.round == round_]
    return [slot.assignment for plan in plans for slot in plan.slots]


def test_a_valid_import_is_a_parent_from_round_0_on_with_what_the_solver_did_on_it() -> None:
    events = turn(imported(0, GOOD, TOLD), imported(1, BAD))
    for order in orders(events, 0):
        assert order.parent in (GOOD, None)
    (first, *_) = (order for order in orders(events, 0) if order.parent == GOOD)
    assert len(first.rollouts) == 4
    assert first.pass_rate is not None
    assert first.trajectories == (TOLD,)
    assert any(order.parent == GOOD for order in orders(events, 1) + orders(events, 2))
    assert any(order.parent not in (GOOD, None) for order in orders(events, 1))
    trials = [e.body for e in events if isinstance(e.body, RolloutRequested) and e.body.env in (GOOD, BAD)]
    assert [(each.env, each.purpose, each.attempts) for each in trials] == [(GOOD, Purpose.review, 4)]


def test_an_import_is_in_no_pool_and_an_order_on_another_parent_shows_no_trajectories() -> None:
    events = turn(imported(0, GOOD, TOLD))
    pools = [event.body for event in events if isinstance(event.body, PoolChanged)]
    assert len(pools) == 3
    assert all(GOOD not in pool.members for pool in pools)
    for event in events:
        if isinstance(event.body, EnvRequested) and event.body.assignment.parent != GOOD:
            assert b"trajectories" not in msgspec.json.encode(event.body)


def test_an_import_that_fails_a_gate_or_cannot_be_tried_holds_nothing_up() -> None:
    events = turn(imported(0, BAD), imported(1, LOST))
    assert any(isinstance(event.body, RunFinished) for event in events)
    assert not any(order.parent in (BAD, LOST) for round_ in range(3) for order in orders(events, round_))


def test_the_order_in_which_imports_are_answered_does_not_change_a_digest() -> None:
    other = fake_digest("import", "another")
    found = {
        tuple(
            event.body.digest
            for event in turn(imported(0, GOOD), imported(1, other), imported(2, BAD), order_seed=seed)
            if isinstance(event.body, RoundClosed)
        )
        for seed in range(6)
    }
    assert len(found) == 1
    assert len(next(iter(found))) == 3
