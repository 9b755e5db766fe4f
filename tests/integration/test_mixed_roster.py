"""A wheel whose proposers are a built-in brain and one model in three arms: bound, answered and replayed alike."""

from collections import Counter
from itertools import pairwise

import pytest
from msgspec import UNSET

from schemas.codec import decode, encode
from schemas.envelope import Event, Meta
from schemas.messages import EnvAbandoned, EnvProposed, EnvRequested, Message, RosterChanged, RoundClosed
from schemas.models import ModelRules, Price
from schemas.outcomes import Role
from schemas.parts import Arm, RosterEntry
from schemas.topology import DECIDERS
from tests.property.test_policies import decisions
from tests.support.memory_wheel import MemoryWheel
from tests.support.wheel import Wheel, hidden, opening

SEED = 7
RULES = ModelRules(endpoint="local", model="org/big-7b", price=Price(completion_usd=10.0), extra={"top_k": 20})
ARMS: tuple[Arm, ...] = ("prompt", "prompt+feedback", "terminal")
ROSTER = (
    RosterEntry(name="procedural", model="procedural", share=0.25),
    *(RosterEntry(name="big", model="org/big-7b", arm=arm, share=0.25, rules=RULES) for arm in ARMS),
)


def mixed() -> list[Message]:
    return [opening(SEED)[0], RosterChanged(ordinal=0, role=Role.proposer, entries=ROSTER)]


def digests(events: list[Event]) -> list[str]:
    return [event.body.digest for event in events if isinstance(event.body, RoundClosed)]


@pytest.mark.parametrize("order", range(2))
async def test_every_proposal_names_the_entry_that_made_it_with_arm_and_settings(order: int) -> None:
    events = await MemoryWheel(order=order).turn(mixed())
    plain = Wheel().turn(mixed())
    assert digests(events) == digests(plain) != []
    bound = {event.body.key(): event.body.entry for event in events if isinstance(event.body, EnvRequested)}
    made = {
        event.body.key(): event.body.entry for event in events if isinstance(event.body, EnvProposed | EnvAbandoned)
    }
    assert made == bound
    counts = Counter((entry.name, entry.arm) for entry in bound.values())
    assert set(counts) == {(entry.name, entry.arm) for entry in ROSTER}
    assert all(entry.rules == (RULES if entry.name == "big" else UNSET) for entry in bound.values())
    recorded = {event.id: event.body for event in events}
    for role in DECIDERS:
        said = {message.id: message for message in decisions(role, [e for e in events if not hidden(role, e)])}
        assert said.items() <= recorded.items()


def test_how_a_model_is_asked_is_part_of_the_round_and_a_built_in_one_says_nothing_of_it() -> None:
    warmer = [
        RosterEntry(name="big", model="m", rules=ModelRules(endpoint="e", model="m", temperature=temperature))
        for temperature in (0.5, 1.0)
    ]
    runs = [
        Wheel().turn([opening(SEED)[0], RosterChanged(ordinal=0, role=Role.proposer, entries=(entry,))])
        for entry in warmer
    ]
    assert all(one != other for one, other in pairwise(map(digests, runs)))
    built_in = RosterChanged(ordinal=0, role=Role.proposer, entries=ROSTER[:1])
    raw = encode(built_in, Meta())
    assert b"rules" not in raw
    assert decode(raw).body == built_in
