"""The worker loop: takes one work message for each free slot, does it, appends the answer, then acknowledges.

A try is written down before it has any effect, so that a killed one counts too. Work whose tries are used up, or that
this code cannot read, is parked with a reason. Nothing here is in memory only: after SIGKILL another worker goes on.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import UNSET
from msgspec.structs import replace

from schemas.envelope import Event, Meta
from schemas.identity import event_id
from schemas.messages import (
    EnvProposed,
    EnvRequested,
    Message,
    WorkFailed,
    WorkNote,
    WorkParked,
    WorkResolved,
    WorkStarted,
)
from schemas.outcomes import Resolution
from schemas.parked import infra_answers
from schemas.parts import Usage, WorkError
from schemas.subjects import BadSubjectError, Subject, parse_subject, subject_of
from services.kernel.delivery import (
    UNOBSERVED,
    Answer,
    Speaker,
    TryFailed,
    append_surely,
    diverged,
    read_event,
    work_error,
)
from services.kernel.errors import Diverged, LogError, LogUnavailable, LogUnknown, Superseded, Unreadable
from services.kernel.log import Delivery, Entry, EventLog, LogConflict, Stored, WorkQueue
from services.kernel.meter import Watch
from services.kernel.spool import CUT_OFF, Spool, Tried, cost_of, is_cut_off

_LOG = logging.getLogger(__name__)
_POLL_S = 30.0
_INFRA_FAILED = "infra_failed"


class Handler(Protocol):
    async def handle(self, event: Event, try_: int) -> Sequence[Answer]:
        """Does the work and returns its whole answer, which is appended as one batch.

        May be cancelled at any await. Long work belongs into a thread or process, else its heartbeat stops.
        Raises: TryFailed, any KernelError, anything: the try is noted as failed and repeated later.
        """
        ...


@dataclass(frozen=True)
class WorkRules:
    slots: int = 1
    ack_wait_s: float = 30.0
    """As the queue has it: so long after a kill the work is delivered again."""
    kills_max: int = 20
    failures_max: int = 3
    backoff_s: tuple[float, ...] = (1.0, 5.0, 30.0)
    """Pause after the first, second, ... failure."""
    drain_s: float = 4.0
    """How long work in flight may go on after a stop, before it is handed back."""


@dataclass(frozen=True)
class _Work:
    """A work message and the position from which its tries count."""

    event: Event
    tries_after_seq: int = 0


@dataclass(frozen=True)
class _Tries:
    next: int
    kills: int
    failures: int


class Worker:
    def __init__(
        self,
        log: EventLog,
        queue: WorkQueue,
        handler: Handler,
        speaker: Speaker,
        rules: WorkRules = WorkRules(),
        spool: Spool = Spool(),  # noqa: B008 - it has no state of its own
    ) -> None:
        self._log = log
        self._queue = queue
        self._handler = handler
        self._speaker = speaker
        self._rules = rules
        self._spool = spool
        self._busy: dict[asyncio.Task[None], Delivery] = {}
        self.answered = 0
        """Work messages answered by this worker since its start."""

    @property
    def in_flight(self) -> tuple[str, ...]:
        """Subjects of the work in hand."""
        return tuple(delivery.stored.subject for delivery in self._busy.values())

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; then finishes within `drain_s` or hands back. Raises: Diverged, LogDenied, ..."""
        stopping = asyncio.create_task(stop.wait())
        telling = asyncio.create_task(self._tell_of_the_killed())
        try:
            await asyncio.wait({stopping, telling}, return_when=asyncio.FIRST_COMPLETED)
            if telling.done():
                telling.result()
            while not stop.is_set():
                if len(self._busy) >= self._rules.slots:
                    await asyncio.wait({stopping, *self._busy}, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await self._take(stopping)
                self._reap()
            if self._busy:
                await asyncio.wait(self._busy, timeout=self._rules.drain_s)
                self._reap()
        finally:
            stopping.cancel()
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
            await self._hand_back(list(self._busy.items()))

    async def _take(self, stopping: asyncio.Task[bool]) -> None:
        """Takes one work message, unless a stop or a failure comes first."""
        asking = asyncio.create_task(self._queue.next(_POLL_S))
        try:
            await asyncio.wait({stopping, asking, *self._busy}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Also when we are cancelled ourselves: what came in that moment must be handed back.
            asking.cancel()
            await asyncio.wait({asking})
            if not asking.cancelled() and (delivery := asking.result()) is not None:
                self._busy[asyncio.create_task(self._serve(delivery))] = delivery

    def _reap(self) -> None:
        for task in [task for task in self._busy if task.done()]:
            if (error := task.exception()) is not None:
                raise error  # the delivery stays in `_busy`, so that it is handed back
            del self._busy[task]

    async def _hand_back(self, unfinished: list[tuple[asyncio.Task[None], Delivery]]) -> None:
        for task, _ in unfinished:
            task.cancel()
        await asyncio.gather(*(task for task, _ in unfinished), return_exceptions=True)
        # First, or the server may give to our own last pull what we hand back, and nobody has it until `ack_wait_s`.
        await self._queue.close()
        for _, delivery in unfinished:
            try:
                async with asyncio.timeout(1.0):
                    await delivery.nak()
            except (LogError, TimeoutError):
                _LOG.warning("%s comes again after %g s", delivery.stored.subject, self._rules.ack_wait_s)
        self._busy.clear()

    async def _serve(self, delivery: Delivery) -> None:
        """One work message from delivery to acknowledgement."""
        beating = asyncio.create_task(self._beat(delivery))
        try:
            delay_s = await self._work_on(delivery.stored)
        finally:
            beating.cancel()
        try:
            await (delivery.ack() if delay_s is None else delivery.nak(delay_s))
        except (LogUnavailable, LogUnknown) as error:
            # It is delivered again; then its answer is found.
            _LOG.warning("%s: not acknowledged: %s", delivery.stored.subject, error)

    async def _beat(self, delivery: Delivery) -> None:
        while True:
            await asyncio.sleep(self._rules.ack_wait_s / 3)
            try:
                await delivery.progress()
            except LogError as error:
                _LOG.warning("%s: no heartbeat: %s", delivery.stored.subject, error)

    async def _work_on(self, stored: Stored) -> float | None:
        """None: done with this delivery. A number: deliver again after so many seconds."""
        try:
            work = await self._work_of(stored)
        except Unreadable as error:
            _LOG.error("parked: %s", error)
            await self._park_unreadable(stored, str(error))
            return None
        if work is None or await self._is_answered(work.event.body):
            return None
        while True:
            tries = await self._count_tries(work)
            if tries.kills >= self._rules.kills_max or tries.failures >= self._rules.failures_max:
                await self._park(work.event, tries)
                return None
            if await self._note(WorkStarted(**self._about(work.event, tries.next)), work.event.id):
                return await self._try(work.event, tries)
            # Somebody else took that try.

    async def _work_of(self, stored: Stored) -> _Work | None:
        """The work that a delivery is about; None: nothing to do. Raises: Unreadable."""
        event = read_event(self._speaker.run, stored)
        if not isinstance(event.body, WorkResolved):
            return _Work(event)
        resolved = event.body
        if resolved.role is not self._speaker.role or resolved.action is not Resolution.retry:
            return None
        original = await self._log.get(resolved.subject)
        if original is None:
            raise Unreadable(f"record {stored.seq} resolves work under {resolved.subject}, where nothing is")
        work = read_event(self._speaker.run, original)
        if work.id != resolved.work_id:
            raise Unreadable(
                f"record {stored.seq} resolves work {resolved.work_id}, but {resolved.subject} is {work.id}"
            )
        return _Work(work, tries_after_seq=stored.seq)

    async def _is_answered(self, work: Message, *, by_try: int | None = None) -> bool:
        """Whole; or any part of it by that try."""
        for alternative in answer_subjects(self._speaker.run, work):
            for subject in alternative:
                stored = await self._log.get(subject)
                if by_try is not None and stored is not None:
                    if read_event(self._speaker.run, stored).meta.try_ == by_try:
                        return True
                elif by_try is None and stored is None:
                    break
            else:
                if by_try is None:
                    return True
        return False

    async def _count_tries(self, work: _Work) -> _Tries:
        """From the notes on the log, since deliveries are forgotten."""
        try_, kills, failures = 1, 0, 0
        while True:
            started = await self._log.get(self._note_subject(WorkStarted, work.event, try_))
            if started is None:
                return _Tries(try_, kills, failures)
            if started.seq > work.tries_after_seq:
                failed = await self._log.get(self._note_subject(WorkFailed, work.event, try_))
                cut_off = failed is None or is_cut_off(read_event(self._speaker.run, failed).body)
                kills, failures = (kills + 1, failures) if cut_off else (kills, failures + 1)
            try_ += 1

    async def _try(self, event: Event, tries: _Tries) -> float | None:
        watch = Watch(self._speaker.clock.now_ns())
        with self._spool.trying(Tried(subject=event.subject, work_id=event.id, try_=tries.next)) as tally:
            try:
                answers = await self._handler.handle(event, tries.next)
                await self._append_answers(event, tries.next, answers)
            except Diverged:
                raise
            except Exception as error:  # noqa: BLE001 - the boundary: whatever a try ends with becomes a note
                _LOG.warning("%s: try %d failed", event.subject, tries.next, exc_info=error)
                failed = error if isinstance(error, TryFailed) else None
                meta = failed.meta if failed else Meta(started_ns=watch.started_ns, wall_s=watch.wall_s())
                usage = (failed.usage if failed else None) or tally.usage
                await self._note_failure(event, tries.next, work_error(error), meta, usage)
                tally.over = True
                return self._rules.backoff_s[min(tries.failures, len(self._rules.backoff_s) - 1)]
            tally.over = True
        self.answered += 1
        return None

    async def _tell_of_the_killed(self) -> None:
        """Says what tries have spent that an earlier process of this replica was killed at."""
        for left in self._spool.left():
            stored = await self._log.get(left.tried.subject) if left.tried else None
            if left.tried is not None and stored is not None:
                work, try_ = read_event(self._speaker.run, stored), left.tried.try_
                if not await self._is_answered(work.body, by_try=try_):
                    await self._note_failure(work, try_, CUT_OFF, UNOBSERVED, left.usage)
            left.remove()

    async def _append_answers(self, event: Event, try_: int, answers: Sequence[Answer]) -> None:
        entries = [
            self._speaker.entry(answer.message, cause=event.id, meta=replace(answer.meta, try_=try_))
            for answer in answers
        ]
        lost: list[Answer] = []
        by_id = {answer.message.id: answer for answer in answers}
        while entries:
            try:
                await append_surely(self._log, entries)
            except LogConflict as conflict:
                for entry, stored in conflict.taken:
                    theirs, ours = read_event(self._speaker.run, stored).body, by_id[entry.id]
                    if ours.deterministic and not _may_differ(theirs) and not _may_differ(ours.message):
                        raise diverged(entry, stored) from conflict
                first = f"{conflict.taken[0][0].subject} is answered at {conflict.taken[0][1].seq}"
                taken = {entry.id for entry, _ in conflict.taken}
                entries = [entry for entry in entries if entry.id not in taken]
                lost += [by_id[id_] for id_ in taken]
                if not entries:
                    await self._note_failure(event, try_, work_error(Superseded(first)), *cost_of(lost))
            else:
                if lost:
                    detail = f"{len(lost)} of {len(answers)} answers were there already"
                    await self._note_failure(event, try_, work_error(Superseded(detail)), *cost_of(lost))
                return

    async def _park(self, event: Event, tries: _Tries) -> None:
        reason = f"{tries.failures} tries failed and {tries.kills} were cut off"
        parked = WorkParked(**self._about(event, tries.next), subject=event.subject, reason=reason)
        _LOG.error("parked: %s: %s", event.subject, reason)
        await self._note(parked, event.id)

    async def _park_unreadable(self, stored: Stored, reason: str) -> None:
        subject = _lenient_subject(stored.subject)
        parked = WorkParked(
            round=subject.round,
            role=self._speaker.role,
            work_id=subject.id,
            try_=1,
            subject=stored.subject,
            reason=reason,
        )
        await self._note(parked, subject.id)

    async def _note_failure(
        self, event: Event, try_: int, error: WorkError, meta: Meta, usage: Usage | None = None
    ) -> None:
        failed = WorkFailed(**self._about(event, try_), error=error, usage=UNSET if usage is None else usage)
        await self._note(failed, event.id, meta)

    async def _note(self, note: WorkNote, cause: str, meta: Meta = UNOBSERVED) -> bool:
        """True where this call put it on the log; False where that try has such a note already."""
        entry: Entry = self._speaker.entry(note, cause=cause, meta=meta)
        while True:
            try:
                return (await self._log.append([entry])).stored
            except LogConflict:
                return False
            except (LogUnavailable, LogUnknown) as error:
                _LOG.warning("waiting for the log: %s", error)
            await asyncio.sleep(1.0)

    def _about(self, event: Event, try_: int) -> dict[str, Any]:
        """What all notes about a try say."""
        return {"round": event.body.round, "role": self._speaker.role, "work_id": event.id, "try_": try_}

    def _note_subject(self, kind: type[WorkNote], event: Event, try_: int) -> str:
        id_ = event_id(kind.name, (event.id, try_))
        return str(Subject(self._speaker.run, kind.name, event.body.round, self._speaker.role.value, id_))


def answer_subjects(run: str, work: Message) -> tuple[tuple[str, ...], ...]:
    """What answers a work message: alternatives, each complete when all its subjects are taken. May be none."""
    alternatives = []
    if given_up := tuple(subject_of(run, message) for message in infra_answers(work)):
        alternatives.append(given_up)
    if isinstance(work, EnvRequested):
        id_ = event_id(EnvProposed.name, work.key())
        alternatives.append((str(Subject(run, EnvProposed.name, work.round, work.lane(), id_)),))
    return tuple(alternatives)


def _may_differ(message: Message) -> bool:
    """Infrastructure trouble, and what a CPU limit decided, follow from no cause on the log."""
    infra = any(getattr(message, name, None) == _INFRA_FAILED for name in ("outcome", "verdict", "reason"))
    return infra or getattr(message, "volatile", False)


def _lenient_subject(text: str) -> Subject:
    """The parts of a subject that may be of an unknown message."""
    try:
        return parse_subject(text)
    except BadSubjectError:
        return Subject("", "", 0, "-", text.rpartition(".")[2])
