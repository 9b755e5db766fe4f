"""The event log: what every implementation offers, and what the callers of all of them share.

One log is one run: one total order of records with positions 1, 2, 3, ... and nothing ever deleted. A subject is taken
once, for ever. The log moves opaque bytes; whether two records say the same is judged by a `Same` given to it.
"""

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from services.kernel.errors import LogError, LogTooLarge

Same = Callable[[bytes, bytes], bool]
"""(stored, mine) -> True where both records say the same thing, whatever was observed on the way."""

EVERYTHING = (">",)
BATCH_ENTRIES_MAX = 1000
"""nats-server's bound on an atomic batch (its error 10199)."""
ENTRY_BYTES_MAX = 6 * 2**20
"""A plan is the largest message: 64 slots of 16 cited rollouts with 4 KiB of test results each fit."""
_SUBJECT = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)+")


@dataclass(frozen=True, slots=True)
class Entry:
    """One record to append under a subject that is taken once."""

    subject: str
    id: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Stored:
    """One record of the log."""

    seq: int
    subject: str
    data: bytes
    appended_at_ns: int
    remaining: int = field(default=0, compare=False)
    """Records behind this one that matched the reader's filter when this one was delivered; 0: caught up."""

    @property
    def id(self) -> str:
        """The last token of the subject."""
        return self.subject.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Appended:
    """All entries are on disk."""

    seqs: tuple[int, ...]
    """Positions, in the order of the entries."""
    stored: bool
    """False: the log had all of them already, saying the same."""


class LogConflict(LogError):
    """Subjects are taken by records that say something else. Nothing was stored."""

    def __init__(self, taken: Sequence[tuple[Entry, Stored]]) -> None:
        subjects = ", ".join(f"{entry.subject} (at {stored.seq})" for entry, stored in taken)
        super().__init__(f"taken by other records: {subjects}")
        self.taken = tuple(taken)


class LogPartial(LogError):
    """Some entries of a batch are on the log already, saying the same. Nothing was stored; append the missing ones."""

    def __init__(self, present: Sequence[Stored], missing: Sequence[Entry]) -> None:
        super().__init__(f"{len(present)} of {len(present) + len(missing)} entries are on the log already")
        self.present = tuple(present)
        self.missing = tuple(missing)


class Delivery(Protocol):
    """One work message in this worker's hands, until it is acked, handed back or its `ack_wait_s` runs out."""

    @property
    def stored(self) -> Stored: ...
    @property
    def deliveries(self) -> int:
        """How often it was delivered, as far as the server remembers: not the number of tries."""
        ...

    async def ack(self) -> None:
        """Done for ever. Raises: LogUnknown, LogUnavailable where the server did not say so: it may come again."""
        ...

    async def nak(self, delay_s: float = 0.0) -> None:
        """Handed back: it is delivered again, to any worker, after `delay_s`."""
        ...

    async def progress(self) -> None:
        """Starts `ack_wait_s` anew."""
        ...


class WorkQueue(Protocol):
    """A named place in the log shared by all workers of that name."""

    async def next(self, timeout_s: float) -> Delivery | None:
        """The next work message, or None after `timeout_s`. One caller at a time."""
        ...

    async def close(self) -> None: ...


class EventLog(Protocol):
    async def append(self, entries: Sequence[Entry]) -> Appended:
        """Stores all entries as one atomic batch, each on a subject that was free; on disk when it returns.

        An exact repetition is not an error: `Appended.stored` is False then.
        Raises: LogConflict, LogPartial (a part is there), LogTooLarge, LogDenied, LogRefused: nothing was stored.
        LogUnknown: the answer was lost and retries ran out; LogUnavailable: no server. Both may be repeated.
        """
        ...

    def read(
        self, after: int = 0, subjects: tuple[str, ...] = EVERYTHING, *, follow: bool = False
    ) -> AsyncGenerator[Stored, None]:
        """Records behind position `after` that match one of the subject filters, in order, each once.

        Without `follow` it ends at the log's end as it was at the call. Survives reconnects and server restarts.
        Leave it early under `contextlib.aclosing`, so that the server hears of it.
        Raises: LogGap where everything is read and a position is missing.
        """
        ...

    async def last_seq(self) -> int:
        """The position of the last record; 0 for an empty log."""
        ...

    async def get(self, subject: str) -> Stored | None: ...

    async def work(
        self, durable: str, subjects: tuple[str, ...], *, ack_wait_s: float = 30.0, in_flight_max: int = 64
    ) -> WorkQueue:
        """The queue of that name, made at the log's start if it does not exist. `in_flight_max` is over all workers."""
        ...

    async def close(self) -> None: ...


async def append_missing(log: EventLog, entries: Sequence[Entry]) -> None:
    """Appends those entries that the log has not got yet. Raises what `append` raises, except LogPartial."""
    missing = tuple(entries)
    while missing:
        try:
            await log.append(missing)
        except LogPartial as partial:
            missing = partial.missing
        else:
            return


async def append_in_parts(log: EventLog, entries: Sequence[Entry]) -> None:
    """Appends more than one batch can hold: each part is atomic, the whole is not; may be repeated whole."""
    for start in range(0, len(entries), BATCH_ENTRIES_MAX):
        await append_missing(log, entries[start : start + BATCH_ENTRIES_MAX])


def matches(pattern: str, subject: str) -> bool:
    """NATS subject filter: `*` is one token, a last `>` is one or more."""
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(tokens) <= len(wanted):
            return False
        tokens = tokens[: len(wanted)]
    return len(wanted) == len(tokens) and all(w in ("*", t) for w, t in zip(wanted, tokens, strict=True))


def check_entries(run: str, entries: Sequence[Entry], entry_bytes_max: int) -> None:
    """Refuses a batch that no log would take.

    Raises: LogTooLarge; ValueError for what only a bug can cause: no entries, a subject twice or of another run.
    """
    if not entries:
        raise ValueError("nothing to append")
    if len(entries) > BATCH_ENTRIES_MAX:
        raise LogTooLarge(f"{len(entries)} entries in one batch, at most {BATCH_ENTRIES_MAX}; use append_in_parts")
    if len({entry.subject for entry in entries}) < len(entries):
        raise ValueError(f"one subject twice in a batch: {sorted(entry.subject for entry in entries)}")
    for entry in entries:
        if not _SUBJECT.fullmatch(entry.subject) or not entry.subject.startswith(run + "."):
            raise ValueError(f"subject {entry.subject!r}: want {run}.<token>... of a-z, 0-9, _ and -")
        if len(entry.data) > entry_bytes_max:
            raise LogTooLarge(
                f"{entry.subject} (id {entry.id}) has {len(entry.data)} bytes, at most {entry_bytes_max}; "
                "put big content into the artifact store and its digest into the event"
            )


def resolve(entries: Sequence[Entry], present: Sequence[Stored | None], same: Same) -> Appended:
    """What an append means whose subjects are taken in part or whole.

    Raises: LogConflict where a taken subject says something else; LogPartial where some entries are missing.
    """
    pairs = [(entry, stored) for entry, stored in zip(entries, present, strict=True) if stored is not None]
    if differing := [(entry, stored) for entry, stored in pairs if not same(stored.data, entry.data)]:
        raise LogConflict(differing)
    if len(pairs) < len(entries):
        missing = [entry for entry, stored in zip(entries, present, strict=True) if stored is None]
        raise LogPartial([stored for _, stored in pairs], missing)
    return Appended(tuple(stored.seq for _, stored in pairs), stored=False)
