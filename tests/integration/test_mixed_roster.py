"""A wheel whose proposers are a built-in brain and one model in three arms: bound, answered and replayed alike."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import pytest
from msgspec import UNSET

from schemas.codec import decode, encode
from schemas.envelope import Event, Meta
from schemas.messages import (
    EnvAbandoned,
    EnvProposed,
    EnvRequested,
    Message,
    PoolChanged,
    RolloutRequested,
    RosterChanged,
    RoundClosed,
    RoundPlanned,
    UpdatePlanned,
)
from schemas.models import ModelRules, Price
from schemas.outcomes import Purpose, Role
from schemas.parts import Arm, RosterEntry
from schemas.topology import DECIDERS
from services.observer.views.decisions_level import decisions_level
from tests.property.test_policies import decisions
from tests.support.histories import History, RecordedWheel
from tests.support.memory_wheel import MemoryWheel
from tests.support.script import Script, fake_digest
from tests.support.wheel import POLICIES, Wheel, hidden, opening

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


@dataclass(frozen=True)
class Trying(Script):
    """Authors that try a draft on the solver before they propose."""

    def answer(self, work: Message) -> list[Message]:
        answers = super().answer(work)
        if not isinstance(work, EnvRequested):
            return answers
        tried = RolloutRequested(
            round=work.round,
            env=fake_digest("draft", *work.key()),
            checkpoint_version=work.checkpoint_version,
            checkpoint=fake_digest("solver"),
            purpose=Purpose.draft,
            attempts=4,
            seed=1,
            slot=work.slot,
            revision=work.revision,
        )
        return [tried, *answers]


async def test_tries_are_in_the_log_and_replay_and_decide_nothing() -> None:
    plain, wheel = Wheel().turn(mixed()), RecordedWheel(Trying())
    trying = wheel.turn(mixed())
    tries = [e for e in trying if isinstance(e.body, RolloutRequested) and e.body.purpose is Purpose.draft]
    assert len(tries) == len([event for event in trying if isinstance(event.body, EnvRequested)]) > 10
    assert decided(trying) == decided(plain)
    source = History(tuple(wheel.records), {}).source()
    assert decisions_level(source, POLICIES).equal


def decided(events: Iterable[Event]) -> dict[str, str]:
    """What follows from the rest of the run, if the tries decide nothing."""
    kinds = (EnvRequested, RoundPlanned, PoolChanged, UpdatePlanned)
    return {event.id: event.body_digest for event in events if isinstance(event.body, kinds)}
