"""The decider: appends what follows from the log, once, whoever else decides, and stops rather than guess."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from schemas.codec import body_digest
from schemas.envelope import Event
from schemas.messages import Message, PoolChanged, RolloutCompleted, RolloutRequested, RosterChanged, RunFinished
from schemas.outcomes import Purpose, Role
from schemas.parked import infra_answers
from schemas.topology import decider_patterns
from services.kernel.decider import Decider
from services.kernel.errors import Diverged, Unreadable
from services.kernel.log import Appended, Entry, EventLog
from tests.support.delivery import (
    PATIENCE_S,
    RUN,
    bodies,
    entry,
    everything,
    open_log,
    pool,
    request,
    rollouts,
    roster,
    say,
    speaker,
    until,
)


@dataclass
class View:
    seen: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class PoolByRoster:
    """Each roster change makes a request and, in one step with it, a pool; `give_up` answers requests at once."""

    VERSION = 1
    give_up: bool = False
    members: tuple[str, ...] = ()

    def initial(self) -> View:
        return View()

    def fold(self, view: View, event: Event, /) -> View:
        return View([*view.seen, event.seq])

    def decide(self, view: View, event: Event, /) -> list[Message]:
        match event.body:
            case RosterChanged(ordinal=9):
                return [RunFinished(why="the trainer is done")]
            case RosterChanged():
                return [request(event.body.ordinal), pool(event.body.ordinal, *self.members)]
            case RolloutRequested() if self.give_up:
                return list(infra_answers(event.body))
            case _:
                return []


@pytest.fixture(params=["memory", "jetstream"])
async def log(request: pytest.FixtureRequest) -> AsyncIterator[EventLog]:
    async with open_log(request.param) as opened:
        yield opened


def decider_on(log: EventLog, policy: PoolByRoster, role: Role = Role.validator, replica: str = "1") -> Decider[View]:
    return Decider(log, policy, speaker(role, replica), decider_patterns(RUN, role))


@asynccontextmanager
async def deciding(log: EventLog, *deciders: Decider[View]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(decider.run()) for decider in deciders]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until_seen(log: EventLog, *deciders: Decider[View]) -> None:
    """Until all have taken in the whole log, and nothing more follows from it."""

    async def all_seen() -> bool:
        last = await log.last_seq()
        return all(decider.caught_up and decider.position == last for decider in deciders)

    await until(all_seen)


async def stopped(decider: Decider[View]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await decider.run()


async def test_what_follows_from_an_event_is_appended_in_order_with_its_cause(log: EventLog) -> None:
    decider = decider_on(log, PoolByRoster())
    async with deciding(log, decider):
        await say(log, roster(1), roster(2))
        await until_seen(log, decider)

    events = await everything(log)
    decided = [event for event in events if not isinstance(event.body, RosterChanged)]
    assert [event.body for event in decided] == [request(1), pool(1), request(2), pool(2)]
    causes = {event.body.ordinal: event.id for event in events if isinstance(event.body, RosterChanged)}
    assert [event.meta.cause for event in decided] == [causes[1], causes[1], causes[2], causes[2]]
    assert (decided[0].meta.service, decided[0].meta.replica, decided[0].meta.host) == ("validator", "1", "here")
    assert decider.view.seen == [1, 2, 3, 4, 5, 6]
    assert decider.trouble is None


async def test_of_several_replicas_each_message_comes_once(log: EventLog) -> None:
    deciders = [decider_on(log, PoolByRoster(), replica=str(n)) for n in range(3)]
    async with deciding(log, *deciders):
        await say(log, *(roster(n) for n in range(1, 6)))
        await until_seen(log, *deciders)

    decided = await bodies(log, RolloutRequested, PoolChanged)
    assert sorted(message.id for message in decided) == sorted(m.id for n in range(1, 6) for m in (request(n), pool(n)))
    assert deciders[0].view == deciders[1].view == deciders[2].view


async def test_a_restarted_decider_appends_nothing_that_is_there(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = decider_on(log, PoolByRoster())
    async with deciding(log, first):
        await say(log, roster(1), roster(2), roster(3))
        await until_seen(log, first)
    before = await everything(log)
    tried: list[Sequence[Entry]] = []
    append = log.append

    async def watched(entries: Sequence[Entry]) -> Appended:
        tried.append(entries)
        return await append(entries)

    monkeypatch.setattr(log, "append", watched)
    second = decider_on(log, PoolByRoster())
    async with deciding(log, second):
        await until_seen(log, second)

    assert tried == []
    assert await everything(log) == before
    assert second.view == first.view


async def test_what_a_killed_decider_left_unsaid_is_said_by_the_next(log: EventLog) -> None:
    await say(log, roster(1), request(1), pool(1), roster(2), roster(3), pool(3))

    decider = decider_on(log, PoolByRoster())
    async with deciding(log, decider):
        await until_seen(log, decider)

    assert (await bodies(log))[6:] == [request(2), pool(2), request(3)]


async def test_another_body_seen_under_a_decided_id_stops_it_and_shows_both(log: EventLog) -> None:
    await say(log, roster(1), request(1), pool(1, "x"), roster(2))
    decider = decider_on(log, PoolByRoster())

    with pytest.raises(Diverged, match="equal causes must give equal bodies") as caught:
        await stopped(decider)

    assert caught.value.stored_digest == body_digest(pool(1, "x"))
    assert caught.value.ours_digest == body_digest(pool(1))
    assert decider.trouble is not None
    assert body_digest(pool(1)) in decider.trouble
    assert len(await everything(log)) == 4


async def test_another_body_met_at_the_append_stops_it_and_nothing_is_stored(log: EventLog) -> None:
    await say(log, pool(1, "x"), roster(1))

    with pytest.raises(Diverged, match=body_digest(pool(1, "x"))):
        await stopped(decider_on(log, PoolByRoster()))

    assert len(await everything(log)) == 2


async def test_two_replicas_that_decide_differently_cannot_both_go_on(log: EventLog) -> None:
    deciders = [decider_on(log, PoolByRoster(members=(name,)), replica=name) for name in ("a", "b")]
    tasks = [asyncio.create_task(stopped(decider)) for decider in deciders]
    await say(log, roster(1))

    done, going_on = await asyncio.wait(tasks, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)

    assert [type(task.exception()) for task in done] == [Diverged]
    for task in going_on:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(await bodies(log, PoolChanged)) == 1


async def test_an_answer_that_came_before_the_giving_up_counts(log: EventLog) -> None:
    await say(log, *rollouts(request(1)), request(1))
    decider = decider_on(log, PoolByRoster(give_up=True), Role.solver)
    async with deciding(log, decider):
        await until_seen(log, decider)
        await say(log, request(2), roster(1))
        await until_seen(log, decider)

    answers = await bodies(log, RolloutCompleted)
    assert answers == [*rollouts(request(1)), *infra_answers(request(2))]


async def test_of_two_endings_the_first_wins(log: EventLog) -> None:
    await say(log, RunFinished(why="the operator said so"), roster(9))
    decider = decider_on(log, PoolByRoster(), Role.trainer)
    async with deciding(log, decider):
        await until_seen(log, decider)
    assert await bodies(log, RunFinished) == [RunFinished(why="the operator said so")]


def garbled(message: Message, old: bytes, new: bytes) -> Entry:
    good = entry(message)
    assert old in good.data
    return replace(good, data=good.data.replace(old, new))


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (garbled(roster(1), b"roster_changed.v1", b"roster_changed.v9"), "version 9 is newer than this code"),
        (garbled(roster(1), b"roster_changed.v1", b"roster_shuffled.v1"), "unknown message type"),
        (garbled(roster(1), b'"ordinal"', b'"colour":1,"ordinal"'), "unknown field"),
        (replace(entry(roster(1)), data=b"\xff\xfe"), "not an envwheel record"),
        (replace(entry(roster(1)), data=entry(roster(2)).data), "its content belongs under"),
    ],
)
async def test_it_stops_at_what_it_cannot_read_and_never_goes_on_with_a_hole(record: Entry, why: str) -> None:
    async with open_log("memory") as log:
        await log.append([record])
        await say(log, roster(3))
        decider = decider_on(log, PoolByRoster())

        with pytest.raises(Unreadable, match=why):
            await stopped(decider)

        assert (decider.position, decider.caught_up) == (0, False)
        assert decider.trouble is not None
        assert decider.trouble.startswith("stopped behind position 0: ")
        assert await log.last_seq() == 2


async def test_the_proposers_decider_goes_on_without_what_is_hidden_from_it(log: EventLog) -> None:
    hidden = evaluating(request(5))
    await say(log, roster(1), hidden)
    decider = decider_on(log, PoolByRoster(), Role.proposer)
    async with deciding(log, decider):
        await until(lambda: asyncio.sleep(0, decider.position == 4))
        await say(log, hidden)
    assert decider.view.seen == [1, 3, 4]
    assert (await bodies(log))[2:] == [request(1), pool(1)]


def evaluating(work: RolloutRequested) -> RolloutRequested:
    return msgspec.structs.replace(work, purpose=Purpose.evaluate)
