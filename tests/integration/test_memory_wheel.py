"""The real loops and policies in one process: unruly delivery, a swap on the way, and records that nobody can read."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import replace

import msgspec
import pytest

from schemas.envelope import Event
from schemas.messages import (
    EnvAbandoned,
    EnvProposed,
    EnvRequested,
    Message,
    RolloutCompleted,
    RolloutRequested,
    RosterChanged,
    RoundClosed,
    WorkParked,
    WorkStarted,
)
from schemas.outcomes import Nature, Purpose, Role
from schemas.parts import RosterEntry
from schemas.subjects import pattern, subject_of
from schemas.topology import DECIDERS, EDGES
from services.kernel.delivery import Speaker, read_event
from services.kernel.errors import Unreadable
from services.kernel.log import Entry
from tests.property.test_policies import decisions
from tests.support.delivery import until
from tests.support.memory_wheel import MemoryWheel
from tests.support.script import Script
from tests.support.wheel import RUN, Wheel, hidden, opening

SEED = 7


def digests(events: Iterable[Event]) -> list[str]:
    return [event.body.digest for event in events if isinstance(event.body, RoundClosed)]


def facts(events: Iterable[Event]) -> dict[str, str]:
    """Body digests of all but notes, by id."""
    return {event.id: event.body_digest for event in events if event.body.nature is not Nature.note}


def calm(seed: int = SEED, script: Script | None = None) -> list[Event]:
    return Wheel(script=script or Script()).turn(opening(seed))


@pytest.mark.parametrize("order", range(4))
async def test_unruly_delivery_ends_with_the_digests_of_a_calm_run(order: int) -> None:
    wheel = MemoryWheel(order=order)
    events = await wheel.turn(opening(SEED))
    plain = calm()
    assert digests(events) == digests(plain) != []
    assert facts(events) == facts(plain)
    work = [event for event in events if EDGES[event.body.name].work_for]
    delivered = Counter(subject for queue in wheel.queues.values() for subject in queue.delivered)
    assert all(delivered[event.subject] == 2 for event in work if event.body.round < 2)
    delivered_order = wheel.queues[Role.solver].delivered
    assert delivered_order != sorted(delivered_order, key=[event.subject for event in events].index)
    again = [event for event in events if isinstance(event.body, WorkStarted) and event.body.try_ > 1]
    assert again, "no work was done twice at once"


async def test_one_solver_or_five_say_the_same() -> None:
    plain = digests(calm())
    for solvers in (1, 5):
        wheel = MemoryWheel(order=9)
        wheel.replicas[Role.solver] = solvers
        assert digests(await wheel.turn(opening(SEED))) == plain


async def test_one_other_reward_token_or_seed_gives_other_digests_from_its_round_on() -> None:
    plain = calm()
    bent = next(e.body for e in plain if isinstance(e.body, RolloutCompleted) and e.body.round == 1)

    def other_token(message: Message) -> Message:
        same = isinstance(message, RolloutCompleted) and message.id == bent.id
        return msgspec.structs.replace(message, content="f" * 64) if same else message

    rewards = {(bent.request, bent.attempt): 0.5}
    token = await MemoryWheel(bend=other_token).turn(opening(SEED))
    reward = await MemoryWheel(script=Script(rewards=rewards)).turn(opening(SEED))
    seed = await MemoryWheel().turn(opening(SEED + 1))
    for changed in (token, reward):
        assert digests(changed)[0] == digests(plain)[0]
        assert digests(changed)[1] != digests(plain)[1]
    assert not set(digests(seed)) & set(digests(plain))


async def test_deciding_again_over_an_unruly_log_gives_what_was_said() -> None:
    events = await MemoryWheel(order=2).turn(opening(SEED))
    recorded = {event.id: event.body for event in events}
    for role in DECIDERS:
        said = {message.id: message for message in decisions(role, [e for e in events if not hidden(role, e)])}
        assert said.items() <= recorded.items()


NEW = RosterEntry(name="newcomer", model="procedural-b")


@pytest.mark.parametrize("order", range(3))
async def test_a_swap_among_open_slots_loses_and_doubles_none_and_binds_from_its_place_on(order: int) -> None:
    wheel = MemoryWheel(order=order)

    async def swap() -> None:
        """When three slots are open and none of them is answered."""
        async with aclosing(wheel.log.read(0, (pattern(RUN, EnvRequested.name),), follow=True)) as requests:
            for _ in range(3):
                await anext(requests)
        await wheel.say(RosterChanged(ordinal=1, role=Role.proposer, entries=(NEW,)))

    swapping = asyncio.create_task(swap())
    events = await wheel.turn(opening(SEED))
    await swapping
    place = {event.id: event.seq for event in events}
    swapped = next(e.seq for e in events if isinstance(e.body, RosterChanged) and e.body.ordinal == 1)
    requests = [event for event in events if isinstance(event.body, EnvRequested)]
    answers = [event for event in events if isinstance(event.body, EnvProposed | EnvAbandoned)]
    key = Counter(event.body.key() for event in requests)
    assert set(key.values()) == {1}
    assert Counter(event.body.key() for event in answers) == key
    answered = {event.body.key(): event.seq for event in answers}
    still_open = [e for e in requests if e.seq < swapped < answered[e.body.key()]]
    assert still_open, "nothing was open at the swap"
    bound: dict[object, str] = {}
    for event in requests:
        assert isinstance(event.body, EnvRequested)
        assert event.meta.cause is not None
        bound[event.body.key()] = event.body.entry.name
        assert event.body.entry.name == ("newcomer" if place[event.meta.cause] > swapped else "procedural")
    assert set(bound.values()) == {"newcomer", "procedural"}
    for event in answers:
        assert isinstance(event.body, EnvProposed | EnvAbandoned)
        assert event.body.entry.name == bound[event.body.key()]
    assert len(digests(events)) == 3


def training_request(ordinal: int) -> RolloutRequested:
    """Work that every role may read of, beside what the wheel asks for."""
    bodies = (event.body for event in calm())
    found = next(b for b in bodies if isinstance(b, RolloutRequested) and b.purpose is Purpose.train)
    return msgspec.structs.replace(found, ordinal=ordinal)


def hostile_records() -> dict[str, tuple[Entry, str]]:
    """By what is wrong: a record under a subject of the solver's work, and what a reader says of it."""
    speaker = Speaker(RUN, Role.trainer)
    entry = speaker.entry(training_request(99))

    def changed(old: bytes, new: bytes) -> Entry:
        assert old in entry.data
        return replace(entry, data=entry.data.replace(old, new))

    return {
        "an unknown type": (
            changed(b"envwheel.rollout_requested.v1", b"envwheel.rollout_dreamt.v1"),
            "unknown message type 'envwheel.rollout_dreamt.v1'",
        ),
        "a newer version": (
            changed(b"rollout_requested.v1", b"rollout_requested.v7"),
            "version 7 is newer than this code (1): upgrade envwheel",
        ),
        "an unknown field": (changed(b'"seed":', b'"mood":"grim","seed":'), "unknown field `mood`"),
        "no record at all": (replace(entry, data=b"\xff\x00{}"), "not an envwheel record"),
        "the place of another": (
            replace(entry, data=speaker.entry(training_request(98)).data),
            "its content belongs under",
        ),
    }


HOSTILE = ("an unknown type", "a newer version", "an unknown field", "no record at all", "the place of another")


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_record_that_cannot_be_read_is_parked_by_workers_and_stops_deciders(what: str) -> None:
    record, why = hostile_records()[what]
    wheel = MemoryWheel()
    await wheel.say(*opening(SEED))
    stop = asyncio.Event()
    tasks = [asyncio.create_task(loop) for loop in wheel.loops(stop)]
    deciding, working = tasks[::2], tasks[1::2]
    await asyncio.sleep(0.05)
    before = [stored async for stored in wheel.log.read()]
    await wheel.log.append([record])
    stopped = await asyncio.wait_for(asyncio.gather(*deciding, return_exceptions=True), 20)
    for error, decider in zip(stopped, wheel.deciders, strict=True):
        assert isinstance(error, Unreadable)
        assert why in str(error)
        assert decider.trouble is not None
        assert record.subject in decider.trouble
    later = training_request(77)
    await wheel.say(later)
    answers = [subject_of(RUN, answer) for answer in Script().answer(later)]
    await until(lambda: all_there(wheel, answers))
    assert not any(task.done() for task in working), "a worker died of it"
    stop.set()
    await asyncio.gather(*working)
    after = [stored async for stored in wheel.log.read()]
    assert after[: len(before)] == before
    parked = [read_event(RUN, stored).body for stored in after if stored.subject.startswith(f"{RUN}.work_parked.")]
    assert {(body.subject, why in body.reason) for body in parked if isinstance(body, WorkParked)} == {
        (record.subject, True)
    }
    kept = await wheel.log.get(record.subject)
    assert kept is not None
    assert kept.data == record.data


async def all_there(wheel: MemoryWheel, subjects: list[str]) -> bool:
    return all([await wheel.log.get(subject) is not None for subject in subjects])
