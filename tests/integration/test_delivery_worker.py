"""The worker: each work message ends answered or parked, every try is on the log before it starts, one body an id."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from schemas.envelope import Event, Meta
from schemas.messages import Message, RolloutCompleted, WorkFailed, WorkParked, WorkResolved, WorkStarted
from schemas.outcomes import Resolution, Role
from schemas.parked import infra_answers
from schemas.parts import Usage, WorkError
from schemas.subjects import subject_of
from schemas.topology import work_patterns
from services.kernel.delivery import Answer, TryFailed
from services.kernel.errors import ArtifactMissing, Diverged
from services.kernel.log import EventLog
from services.kernel.worker import Worker, WorkRules
from tests.support.delivery import (
    RUN,
    bodies,
    entry,
    everything,
    open_log,
    request,
    rollouts,
    say,
    speaker,
    until,
)

Work = Callable[[Event, int], Awaitable[Sequence[Answer]]]
QUICK = WorkRules(slots=1, ack_wait_s=0.6, backoff_s=(0.05, 0.1), drain_s=0.2)


@pytest.fixture(params=["memory", "jetstream"])
async def log(request: pytest.FixtureRequest) -> AsyncIterator[EventLog]:
    async with open_log(request.param) as opened:
        yield opened


@dataclass
class Scripted:
    """Does what the script says, and remembers what it was asked for."""

    work: Work
    tries: list[tuple[int, int]] = field(default_factory=list)
    """(ordinal of the request, try)"""
    running: int = 0
    most_running: int = 0

    async def handle(self, event: Event, try_: int) -> Sequence[Answer]:
        self.tries.append((getattr(event.body, "ordinal", -1), try_))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            return await self.work(event, try_)
        finally:
            self.running -= 1


async def solves(event: Event, try_: int) -> Sequence[Answer]:
    return [Answer(message, Meta(cpu_s=0.5)) for message in rollouts(event.body)]


async def sleeps(event: Event, try_: int) -> Sequence[Answer]:
    await asyncio.sleep(60)
    return []


async def worker_on(log: EventLog, handler: Scripted, rules: WorkRules = QUICK, replica: str = "1") -> Worker:
    queue = await log.work("solver", work_patterns(RUN, Role.solver), ack_wait_s=rules.ack_wait_s)
    return Worker(log, queue, handler, speaker(Role.solver, replica), rules)


@asynccontextmanager
async def working(*workers: Worker) -> AsyncIterator[asyncio.Event]:
    stop = asyncio.Event()
    tasks = [asyncio.create_task(worker.run(stop)) for worker in workers]
    try:
        yield stop
        stop.set()
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until_there(log: EventLog, count: int, *kinds: type[Message]) -> None:
    async def enough() -> bool:
        return len(await bodies(log, *kinds)) >= count

    await until(enough)


def notes(work: Message, last_try: int) -> list[Message]:
    return [WorkStarted(round=work.round, role=Role.solver, work_id=work.id, try_=n) for n in range(1, last_try + 1)]


async def test_work_is_noted_done_answered_in_one_piece_and_acknowledged(log: EventLog) -> None:
    handler = Scripted(solves)
    worker = await worker_on(log, handler)
    await say(log, request(1), request(2))
    async with working(worker):
        await until_there(log, 4, RolloutCompleted)

    events = await everything(log)
    assert [event.body for event in events[2:]] == [
        *notes(request(1), 1),
        *rollouts(request(1)),
        *notes(request(2), 1),
        *rollouts(request(2)),
    ]
    answer = events[3]
    assert (answer.meta.cause, answer.meta.service, answer.meta.cpu_s) == (request(1).id, "solver", 0.5)
    assert (handler.tries, worker.answered, worker.in_flight) == ([(1, 1), (2, 1)], 2, ())
    queue = await log.work("solver", work_patterns(RUN, Role.solver), ack_wait_s=0.6)
    assert await queue.next(0.8) is None


async def test_a_failed_try_is_noted_by_kind_and_repeated(log: EventLog) -> None:
    async def fails_twice(event: Event, try_: int) -> Sequence[Answer]:
        if try_ == 1:
            raise ArtifactMissing("ab", "no such file")
        if try_ == 2:
            error = WorkError(boundary="sandbox", kind="no_space", detail="disk full")
            raise TryFailed(error, Meta(cpu_s=3.0), Usage(prompt_tokens=9, completion_tokens=2))
        return await solves(event, try_)

    handler = Scripted(fails_twice)
    await say(log, request(1))
    async with working(await worker_on(log, handler)):
        await until_there(log, 2, RolloutCompleted)

    first, second = (event for event in await everything(log) if isinstance(event.body, WorkFailed))
    assert first.body == WorkFailed(
        round=3,
        role=Role.solver,
        work_id=request(1).id,
        try_=1,
        error=WorkError(
            boundary="artifacts",
            kind="artifact_missing",
            detail="artifact ab: no such file",
            took_effect=False,
            retry=False,
        ),
        usage=Usage(),
    )
    assert isinstance(second.body, WorkFailed)
    assert (second.body.try_, second.body.error.kind, second.meta.cpu_s) == (2, "no_space", 3.0)
    assert second.body.usage == Usage(prompt_tokens=9, completion_tokens=2)
    assert handler.tries == [(1, 1), (1, 2), (1, 3)]


async def test_an_error_of_no_known_kind_is_noted_and_other_work_goes_on(
    log: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    async def stumbles(event: Event, try_: int) -> Sequence[Answer]:
        if getattr(event.body, "ordinal", 0) == 1:
            raise ZeroDivisionError("by zero")
        return await solves(event, try_)

    handler = Scripted(stumbles)
    await say(log, request(1), request(2))
    with caplog.at_level(logging.WARNING):
        async with working(await worker_on(log, handler)):
            await until_there(log, 1, WorkParked)
            await until_there(log, 2, RolloutCompleted)

    failures = await bodies(log, WorkFailed)
    assert [failure.error.kind for failure in failures if isinstance(failure, WorkFailed)] == ["ZeroDivisionError"] * 3
    assert "Traceback" in caplog.text
    assert await bodies(log, WorkParked) == [
        WorkParked(
            round=3,
            role=Role.solver,
            work_id=request(1).id,
            try_=4,
            subject=subject_of(RUN, request(1)),
            reason="3 tries failed and 0 were cut off",
        )
    ]
    assert handler.tries.count((2, 1)) == 1


async def test_work_that_was_cut_off_too_often_is_parked_before_it_starts(log: EventLog) -> None:
    await say(log, *notes(request(1), 20), *notes(request(2), 19), request(1), request(2))
    handler = Scripted(solves)
    async with working(await worker_on(log, handler)):
        await until_there(log, 1, WorkParked)
        await until_there(log, 2, RolloutCompleted)

    [parked] = await bodies(log, WorkParked)
    assert isinstance(parked, WorkParked)
    assert (parked.work_id, parked.try_, parked.reason) == (request(1).id, 21, "0 tries failed and 20 were cut off")
    assert handler.tries == [(2, 20)]


async def test_parked_work_is_tried_anew_when_the_operator_says_so(log: EventLog) -> None:
    async def works_from_the_fifth_on(event: Event, try_: int) -> Sequence[Answer]:
        if try_ < 5:
            raise OSError("not yet")
        return await solves(event, try_)

    handler = Scripted(works_from_the_fifth_on)
    await say(log, request(1))
    async with working(await worker_on(log, handler)):
        await until_there(log, 1, WorkParked)
        assert handler.tries == [(1, 1), (1, 2), (1, 3)]
        await say(log, resolved(request(1), Resolution.retry))
        await until_there(log, 2, RolloutCompleted)

    assert handler.tries == [(1, n) for n in range(1, 6)]
    assert len(await bodies(log, WorkParked)) == 1


def resolved(work: Message, action: Resolution, subject: str = "") -> WorkResolved:
    return WorkResolved(
        work_id=work.id, ordinal=0, role=Role.solver, subject=subject or subject_of(RUN, work), action=action
    )


async def test_work_that_is_given_up_is_not_started(log: EventLog) -> None:
    handler = Scripted(solves)
    await say(log, resolved(request(1), Resolution.give_up), request(2))
    async with working(await worker_on(log, handler)):
        await until_there(log, 2, RolloutCompleted)
    assert handler.tries == [(2, 1)]


async def test_what_cannot_be_read_is_parked_with_the_reason_and_the_worker_lives(log: EventLog) -> None:
    good = entry(request(1))
    await log.append([replace(good, data=good.data.replace(b'"seed"', b'"sede"'))])
    await say(log, resolved(request(2), Resolution.retry))
    await say(log, resolved(request(3), Resolution.retry, good.subject), request(4))
    handler = Scripted(solves)
    async with working(await worker_on(log, handler)):
        await until_there(log, 2, RolloutCompleted)

    first, second, third = await bodies(log, WorkParked)
    assert isinstance(first, WorkParked)
    assert (first.work_id, first.subject, first.round) == (request(1).id, good.subject, 3)
    assert "sede" in first.reason
    assert isinstance(second, WorkParked)
    assert "where nothing is" in second.reason
    assert isinstance(third, WorkParked)
    assert "sede" in third.reason
    assert handler.tries == [(4, 1)]


async def test_answered_work_is_not_done_again(log: EventLog) -> None:
    await say(log, *rollouts(request(1)), request(1), request(2))
    handler = Scripted(solves)
    async with working(await worker_on(log, handler)):
        await until_there(log, 4, RolloutCompleted)
    assert handler.tries == [(2, 1)]


def answering(log: EventLog, others: Sequence[Message], *, deterministic: bool) -> Work:
    """Somebody else's answer arrives while ours is being worked out."""

    async def work(event: Event, try_: int) -> Sequence[Answer]:
        await log.append([entry(message, Role.solver) for message in others])
        return [Answer(message, deterministic=deterministic) for message in rollouts(event.body)]

    return work


async def test_another_deterministic_answer_stops_the_service_and_the_work_comes_again(log: EventLog) -> None:
    others = rollouts(request(1), reward=0.0)
    worker = await worker_on(log, Scripted(answering(log, others, deterministic=True)))
    await say(log, request(1))

    with pytest.raises(Diverged, match="equal causes must give equal bodies"):
        await asyncio.wait_for(worker.run(asyncio.Event()), 15)

    assert await bodies(log, RolloutCompleted, WorkFailed) == others
    again = await (await log.work("solver", work_patterns(RUN, Role.solver), ack_wait_s=0.6)).next(0.4)
    assert again is not None


async def test_of_two_answers_of_a_remote_model_the_first_counts(log: EventLog) -> None:
    others = rollouts(request(1), reward=0.0)
    handler = Scripted(answering(log, others, deterministic=False))
    await say(log, request(1))
    async with working(await worker_on(log, handler)):
        await until_there(log, 1, WorkFailed)

    assert await bodies(log, RolloutCompleted) == others
    [failed] = await bodies(log, WorkFailed)
    assert isinstance(failed, WorkFailed)
    assert (failed.error.kind, failed.try_) == ("superseded", 1)
    assert len(handler.tries) == 1


async def test_a_late_answer_to_work_that_was_given_up_is_superseded_where_it_is_taken(log: EventLog) -> None:
    given_up = infra_answers(request(1))[:1]
    handler = Scripted(answering(log, given_up, deterministic=True))
    await say(log, request(1))
    async with working(await worker_on(log, handler)):
        await until_there(log, 2, RolloutCompleted)

    assert await bodies(log, RolloutCompleted) == [*given_up, *rollouts(request(1))[1:]]
    assert len(await bodies(log, WorkFailed)) == 1


async def test_an_equal_answer_of_another_worker_is_no_failure(log: EventLog) -> None:
    handler = Scripted(answering(log, rollouts(request(1)), deterministic=True))
    worker = await worker_on(log, handler)
    await say(log, request(1))
    async with working(worker):
        await until(lambda: asyncio.sleep(0, worker.answered == 1))
    assert await bodies(log, WorkFailed) == []
    assert await bodies(log, RolloutCompleted) == rollouts(request(1))


async def test_long_work_is_kept_by_its_heartbeat(log: EventLog) -> None:
    async def slow(event: Event, try_: int) -> Sequence[Answer]:
        await asyncio.sleep(1.6)
        return await solves(event, try_)

    handlers = [Scripted(slow), Scripted(slow)]
    workers = [await worker_on(log, handler, replica=str(n)) for n, handler in enumerate(handlers)]
    await say(log, request(1))
    async with working(*workers):
        await until_there(log, 2, RolloutCompleted)
    assert sorted(len(handler.tries) for handler in handlers) == [0, 1]


async def test_slots_bound_the_work_at_once_and_replicas_share_it(log: EventLog) -> None:
    async def short(event: Event, try_: int) -> Sequence[Answer]:
        await asyncio.sleep(0.05)
        return await solves(event, try_)

    handlers = [Scripted(short), Scripted(short)]
    rules = replace(QUICK, slots=3)
    workers = [await worker_on(log, handler, rules, str(n)) for n, handler in enumerate(handlers)]
    await say(log, *(request(n) for n in range(20)))
    async with working(*workers):
        await until_there(log, 40, RolloutCompleted)

    assert sorted(handlers[0].tries + handlers[1].tries) == [(n, 1) for n in range(20)]
    assert [handler.most_running for handler in handlers] == [3, 3]


async def test_a_stop_lets_short_work_end_and_hands_long_work_back_at_once(log: EventLog) -> None:
    async def by_ordinal(event: Event, try_: int) -> Sequence[Answer]:
        await asyncio.sleep(60 if getattr(event.body, "ordinal", 0) == 1 else 0.1)
        return await solves(event, try_)

    handler, next_handler = Scripted(by_ordinal), Scripted(solves)
    patient = replace(QUICK, slots=2, ack_wait_s=30.0, drain_s=0.5)
    worker = await worker_on(log, handler, patient)
    await say(log, request(1), request(2))
    async with working(worker):
        await until(lambda: asyncio.sleep(0, handler.running == 2))

    assert await bodies(log, RolloutCompleted) == rollouts(request(2))
    assert worker.in_flight == ()
    async with working(await worker_on(log, next_handler, patient)):
        await until_there(log, 4, RolloutCompleted)
    assert next_handler.tries == [(1, 2)]


async def test_a_cancelled_worker_hands_its_work_back(log: EventLog) -> None:
    handler, next_handler = Scripted(sleeps), Scripted(solves)
    patient = replace(QUICK, ack_wait_s=30.0)
    await say(log, request(1))
    task = asyncio.create_task((await worker_on(log, handler, patient)).run(asyncio.Event()))
    await until(lambda: asyncio.sleep(0, handler.running == 1))
    task.cancel()
    await asyncio.wait({task})

    assert task.cancelled()
    assert handler.running == 0
    async with working(await worker_on(log, next_handler, patient)):
        await until_there(log, 2, RolloutCompleted)
    assert next_handler.tries == [(1, 2)]
