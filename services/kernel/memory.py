"""The event log in this process's memory: for tests, and for trying a policy without a server. Nothing is on disk."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

from services.kernel.clock import Clock, SystemClock
from services.kernel.log import (
    ENTRY_BYTES_MAX,
    EVERYTHING,
    Appended,
    Entry,
    Same,
    Stored,
    check_entries,
    matches,
    resolve,
)


@dataclass
class _Flight:
    """A delivered, unacknowledged work message."""

    deliveries: int
    due_s: float
    """Loop time at which it is delivered again."""


@dataclass
class _Durable:
    """The place of one queue in the log."""

    next_index: int = 0
    flights: dict[int, _Flight] = field(default_factory=dict)


class MemoryLog:
    """One run's log. All users share the object; it lives in one event loop."""

    def __init__(
        self, run: str, same: Same, *, clock: Clock | None = None, entry_bytes_max: int = ENTRY_BYTES_MAX
    ) -> None:
        self.run = run
        self._same = same
        self._clock = clock or SystemClock()
        self._entry_bytes_max = entry_bytes_max
        self._records: list[Stored] = []
        self._by_subject: dict[str, Stored] = {}
        self._durables: dict[str, _Durable] = {}
        self._changed = asyncio.Event()

    async def append(self, entries: Sequence[Entry]) -> Appended:
        check_entries(self.run, entries, self._entry_bytes_max)
        present = [self._by_subject.get(entry.subject) for entry in entries]
        if any(present):
            return resolve(entries, present, self._same)
        first = len(self._records) + 1
        for seq, entry in enumerate(entries, first):
            stored = Stored(seq, entry.subject, entry.data, self._clock.now_ns())
            self._records.append(stored)
            self._by_subject[entry.subject] = stored
        self.notify()
        return Appended(tuple(range(first, first + len(entries))), stored=True)

    async def read(
        self, after: int = 0, subjects: tuple[str, ...] = EVERYTHING, *, follow: bool = False
    ) -> AsyncGenerator[Stored, None]:
        end = len(self._records)
        while True:
            changed, known = self._changed, len(self._records) if follow else end
            matching = [r for r in self._records[after:known] if _wanted(subjects, r)]
            for index, record in enumerate(matching, 1):
                yield replace(record, remaining=len(matching) - index)
            after = max(after, known)
            if not follow:
                return
            await changed.wait()

    async def last_seq(self) -> int:
        return len(self._records)

    async def get(self, subject: str) -> Stored | None:
        return self._by_subject.get(subject)

    async def work(
        self, durable: str, subjects: tuple[str, ...], *, ack_wait_s: float = 30.0, in_flight_max: int = 64
    ) -> "MemoryQueue":
        place = self._durables.setdefault(durable, _Durable())
        return MemoryQueue(self, place, self._records, subjects, ack_wait_s, in_flight_max)

    async def close(self) -> None:
        """Nothing to give back; the records stay."""

    @property
    def changed(self) -> asyncio.Event:
        """Set at the next append, ack or hand-back. Take it before looking, wait for it after."""
        return self._changed

    def notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class MemoryQueue:
    def __init__(
        self,
        log: MemoryLog,
        place: _Durable,
        records: Sequence[Stored],
        subjects: tuple[str, ...],
        ack_wait_s: float,
        in_flight_max: int,
    ) -> None:
        self._log = log
        self._place = place
        self._records = records
        self._subjects = subjects
        self._ack_wait_s = ack_wait_s
        self._in_flight_max = in_flight_max

    async def next(self, timeout_s: float) -> "MemoryDelivery | None":
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while True:
            changed, now_s = self._log.changed, loop.time()
            if (delivery := self._take(now_s)) is not None:
                return delivery
            if now_s >= deadline_s:
                return None
            wake_s = min([deadline_s, *(flight.due_s for flight in self._place.flights.values())])
            try:
                async with asyncio.timeout(max(wake_s - now_s, 0.0)):
                    await changed.wait()
            except TimeoutError:
                continue

    def _take(self, now_s: float) -> "MemoryDelivery | None":
        flights = self._place.flights
        due = [seq for seq, flight in flights.items() if flight.due_s <= now_s]
        if due:
            seq = min(due)
            flights[seq] = _Flight(flights[seq].deliveries + 1, now_s + self._ack_wait_s)
            return MemoryDelivery(self, self._records[seq - 1], flights[seq].deliveries)
        while len(flights) < self._in_flight_max and self._place.next_index < len(self._records):
            record = self._records[self._place.next_index]
            self._place.next_index += 1
            if _wanted(self._subjects, record):
                flights[record.seq] = _Flight(1, now_s + self._ack_wait_s)
                return MemoryDelivery(self, record, 1)
        return None

    def settle(self, seq: int, due_in_s: float | None) -> None:
        """Ends a flight (None) or sets the time to its next delivery."""
        flight = self._place.flights.pop(seq, None)
        if flight is not None and due_in_s is not None:
            flight.due_s = asyncio.get_running_loop().time() + due_in_s
            self._place.flights[seq] = flight
        self._log.notify()

    @property
    def ack_wait_s(self) -> float:
        return self._ack_wait_s

    async def close(self) -> None:
        """What is in flight comes again after `ack_wait_s`."""


@dataclass(frozen=True)
class MemoryDelivery:
    queue: MemoryQueue
    stored: Stored
    deliveries: int

    async def ack(self) -> None:
        self.queue.settle(self.stored.seq, None)

    async def nak(self, delay_s: float = 0.0) -> None:
        self.queue.settle(self.stored.seq, delay_s)

    async def progress(self) -> None:
        self.queue.settle(self.stored.seq, self.queue.ack_wait_s)


def _wanted(subjects: tuple[str, ...], record: Stored) -> bool:
    return any(matches(pattern, record.subject) for pattern in subjects)
