"""Policies over generated histories: order decides nothing, parts fold like the whole, repetition is silence."""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.envelope import Event
from schemas.messages import Message, RoundClosed
from schemas.outcomes import Role
from schemas.topology import DECIDERS
from tests.support.script import Script
from tests.support.wheel import POLICIES, Wheel, hidden, opening

seeds = st.integers(min_value=0, max_value=2**32)


def history(seed: int, order_seed: int) -> list[Event]:
    return Wheel(order_seed=order_seed).turn(opening(seed))


def digests(events: Iterable[Event]) -> list[str]:
    return [event.body.digest for event in events if isinstance(event.body, RoundClosed)]


def folded(role: Role, events: Iterable[Event]) -> Any:
    view = POLICIES[role].initial()
    for event in events:
        view = POLICIES[role].fold(view, event)
    return view


def decisions(role: Role, events: list[Event]) -> list[Message]:
    view, said = POLICIES[role].initial(), []
    for event in events:
        view = POLICIES[role].fold(view, event)
        said += POLICIES[role].decide(view, event)
    return said


@settings(max_examples=30, deadline=None)
@given(seed=seeds, orders=st.tuples(seeds, seeds))
def test_round_digests_and_bodies_do_not_depend_on_the_order_of_delivery(seed: int, orders: tuple[int, int]) -> None:
    one, other = (history(seed, order) for order in orders)
    assert len(digests(one)) == 3
    assert digests(one) == digests(other)
    assert {e.id: e.body_digest for e in one} == {e.id: e.body_digest for e in other}


@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_another_seed_gives_other_digests_in_every_round(seed: int) -> None:
    assert not set(digests(history(seed, 0))) & set(digests(history(seed + 1, 0)))


@settings(max_examples=15, deadline=None)
@given(seed=seeds, place=st.integers(min_value=0, max_value=10**6))
def test_one_other_reward_gives_another_digest_from_its_round_on(seed: int, place: int) -> None:
    plain = history(seed, 0)
    rollouts = [e for e in plain if e.body.name == "rollout_completed"]
    bent = rollouts[place % len(rollouts)].body
    reward = 0.5 if getattr(bent, "reward", None) != 0.5 else 0.25
    script = Script(rewards={(bent.request, bent.attempt): reward})  # type: ignore[attr-defined] # a RolloutCompleted
    changed = Wheel(script=script).turn(opening(seed))
    assert digests(plain)[: bent.round] == digests(changed)[: bent.round]
    assert digests(plain)[bent.round] != digests(changed)[bent.round]


@pytest.mark.parametrize("role", DECIDERS)
@settings(max_examples=10, deadline=None)
@given(seed=seeds, cut=st.floats(min_value=0, max_value=1))
def test_a_prefix_and_the_rest_fold_to_the_same_view_as_the_whole(role: Role, seed: int, cut: float) -> None:
    """Decided over or only read: a view handed over anywhere becomes the same, and what it came from stays as it is."""
    events = [event for event in history(seed, seed) if not hidden(role, event)]
    place = int(cut * len(events))
    policy = POLICIES[role]
    begun = policy.initial()
    for event in events[:place]:
        begun = policy.fold(begun, event)
        policy.decide(begun, event)
    resumed = deepcopy(begun)
    for event in events[place:]:
        resumed = policy.fold(resumed, event)
        policy.decide(resumed, event)
    whole = folded(role, events)
    assert resumed == whole
    assert begun == folded(role, events[:place])
    assert whole.seen == {event.id for event in events}


@pytest.mark.parametrize("role", DECIDERS)
@settings(max_examples=10, deadline=None)
@given(seed=seeds, place=st.integers(min_value=0, max_value=10**6))
def test_repeated_events_change_nothing(role: Role, seed: int, place: int) -> None:
    events = [event for event in history(seed, seed) if not hidden(role, event)]
    later = place % (len(events) + 1)
    repeated = [*events[:later], *events[:later], *events[later:]]
    assert {m.id: m for m in decisions(role, repeated)} == {m.id: m for m in decisions(role, events)}
    assert folded(role, repeated) == folded(role, events)


@pytest.mark.parametrize("role", DECIDERS)
def test_deciding_again_over_the_log_gives_every_message_that_the_role_said(role: Role) -> None:
    events = history(7, 3)
    said = {message.id: message for message in decisions(role, [e for e in events if not hidden(role, e)])}
    recorded = {event.id: event.body for event in events}
    assert said.items() <= recorded.items()
    counts = {Role.proposer: 20, Role.validator: 20, Role.solver: 0, Role.trainer: 20}
    assert len(said) >= counts[role]
