"""The budget of a run: once the bodies of the log have spent it nobody asks for more, and the run ends cleanly."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.envelope import Event
from schemas.messages import (
    EnvAbandoned,
    EnvProposed,
    EnvRequested,
    EnvValidated,
    Message,
    RolloutCompleted,
    RolloutRequested,
    RosterChanged,
    RoundPlanned,
    RunFinished,
    UpdatePlanned,
)
from schemas.models import ModelRules, Price
from schemas.outcomes import Nature, Role
from schemas.parts import RosterEntry, Usage
from schemas.topology import DECIDERS
from tests.support.script import Script, chance
from tests.support.wheel import POLICIES, Wheel, hidden, opening, small_science

seeds = st.integers(min_value=0, max_value=2**32)
PRICE = Price(prompt_usd=2.0, cached_usd=0.5, completion_usd=8.0)
PRICED = RosterEntry(
    name="asked", model="m", arm="prompt", share=0.5, rules=ModelRules(endpoint="there", model="m", price=PRICE)
)
FREE = RosterEntry(name="procedural", model="procedural", share=0.5)
BUDGET = "budget: all that it allows is spent"


@dataclass(frozen=True)
class Spending(Script):
    """Authors behind an endpoint spend a few hundred tokens, some of them on nothing."""

    def _propose(self, work: EnvRequested) -> EnvProposed | EnvAbandoned:
        usage = Usage()
        if work.entry.name == PRICED.name:
            prompt = int(1000 * chance("prompt", work.id))
            usage = Usage(prompt_tokens=prompt, cached_tokens=prompt // 3, completion_tokens=prompt // 4)
        return replace(super()._propose(work), usage=usage)


def history(seed: int, order_seed: int, **budget: float) -> list[Event]:
    started, _ = opening(seed, small_science(**budget))
    roster = RosterChanged(ordinal=0, role=Role.proposer, entries=(FREE, PRICED))
    return Wheel(script=Spending(), order_seed=order_seed).turn([started, roster])


def usd(body: EnvProposed | EnvAbandoned) -> float:
    """By hand, from the numbers above."""
    if body.entry.name != "asked":
        return 0.0
    usage = body.usage
    fresh = usage.prompt_tokens - usage.cached_tokens
    return fresh * 2e-6 + usage.cached_tokens * 0.5e-6 + usage.completion_tokens * 8e-6


def spent(bodies: Iterable[Message]) -> tuple[int, float]:
    tokens, money = 0, 0.0
    for body in bodies:
        if isinstance(body, EnvProposed | EnvAbandoned):
            tokens += body.usage.prompt_tokens + body.usage.completion_tokens
            money += usd(body)
        elif isinstance(body, RolloutCompleted) and body.purpose != "evaluate":
            tokens += body.usage.prompt_tokens + body.usage.completion_tokens
    return tokens, money


def place_where_spent(events: list[Event], tokens_max: float, usd_max: float) -> int | None:
    for place in range(len(events)):
        tokens, money = spent(event.body for event in events[: place + 1])
        if tokens >= tokens_max or money >= usd_max * (1 - 1e-12):
            return place
    return None


def said_at(role: Role, events: list[Event]) -> list[tuple[int, Message]]:
    """What a role's policy says over the whole log, with the place of the event that it follows from."""
    policy: Any = POLICIES[role]
    view, said = policy.initial(), []
    for place, event in enumerate(events):
        if not hidden(role, event):
            view = policy.fold(view, event)
            said += [(place, message) for message in policy.decide(view, event)]
    return said


def check(events: list[Event], tokens_max: float, usd_max: float) -> None:
    place = place_where_spent(events, tokens_max, usd_max)
    said = [(role, *each) for role in DECIDERS for each in said_at(role, events)]
    recorded = {event.id: event.body for event in events}
    assert all(recorded[message.id] == message for _, _, message in said), "a replay says something else"
    finished = [event for event in events if isinstance(event.body, RunFinished)]
    if place is None:
        assert [event.body.why for event in finished if isinstance(event.body, RunFinished)] == ["all rounds are done"]
        return
    late = [m for _, at, m in said if at >= place and (m.nature is Nature.request or isinstance(m, RoundPlanned))]
    assert late == []
    (ended,) = (at for _, at, message in said if isinstance(message, RunFinished))
    closed = any(event.body.name == "round_closed" and event.body.round == 2 for event in events)
    (why,) = (event.body.why for event in finished if isinstance(event.body, RunFinished))
    assert why == ("all rounds are done" if closed else BUDGET)
    assert ended >= place
    assert open_work(events[: ended + 1]) == set(), "the run ended over work in flight"


def open_work(events: list[Event]) -> set[str]:
    asked, answered = set(), set()
    for event in events:
        body = event.body
        match body:
            case EnvRequested():
                asked.add(("env", body.key()))
            case EnvProposed():
                answered.add(("env", body.key()))
                asked.add(("gates", body.key()))
            case EnvAbandoned():
                answered.add(("env", body.key()))
            case EnvValidated():
                answered.add(("gates", body.key()))
            case RolloutRequested():
                asked |= {("rollout", (event.id, attempt)) for attempt in range(body.attempts)}
            case RolloutCompleted():
                answered.add(("rollout", (body.request, body.attempt)))
            case UpdatePlanned():
                asked.add(("update", (body.update,)))
            case _ if body.name == "checkpoint_published":
                answered.add(("update", (getattr(body, "checkpoint_version", -1),)))
            case _:
                pass
    return {str(each) for each in asked - answered}


@settings(max_examples=25, deadline=None)
@given(seed=seeds, order=seeds, tokens=st.integers(1, 9000))
def test_nothing_is_asked_for_once_the_tokens_are_spent(seed: int, order: int, tokens: int) -> None:
    check(history(seed, order, budget_tokens=tokens), tokens, float("inf"))


@settings(max_examples=25, deadline=None)
@given(seed=seeds, order=seeds, millis=st.integers(1, 60))
def test_nothing_is_asked_for_once_the_money_is_spent(seed: int, order: int, millis: int) -> None:
    check(history(seed, order, budget_usd=millis / 1000), float("inf"), millis / 1000)


def test_a_budget_that_is_never_reached_changes_nothing() -> None:
    free, bounded = history(7, 3), history(7, 3, budget_tokens=10**9, budget_usd=1e6)
    assert [(e.id, e.body_digest) for e in free][1:] == [(e.id, e.body_digest) for e in bounded][1:]
    assert spent(event.body for event in free)[1] > 0.01
