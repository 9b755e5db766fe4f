"""What the two loops of a service share: reading records, speaking with a name, appending until it is on the log."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import msgspec

from schemas.codec import CodecError, decode, encode, raw_body
from schemas.envelope import Event, Meta
from schemas.messages import Message, RunFinished
from schemas.outcomes import Nature, Role
from schemas.parts import Usage, WorkError
from schemas.subjects import subject_of
from services.kernel.clock import Clock, SystemClock
from services.kernel.errors import DeliveryError, Diverged, KernelError, LogUnavailable, LogUnknown, Unreadable
from services.kernel.log import BATCH_ENTRIES_MAX, Entry, EventLog, Stored, append_in_parts, append_missing

_LOG = logging.getLogger(__name__)
_DETAIL_CHARS_MAX = 2000
UNOBSERVED = Meta()


@dataclass(frozen=True)
class Answer:
    """A message that a handler wants said, with what it observed on the way."""

    message: Message
    meta: Meta = UNOBSERVED
    deterministic: bool = True
    """False where the work rests on an engine that may say something else the next time (a remote model)."""


class TryFailed(DeliveryError):
    """Raised by a handler that can say more about its failure than an exception does, such as what the try spent."""

    def __init__(self, error: WorkError, meta: Meta = UNOBSERVED, usage: Usage | None = None) -> None:
        super().__init__(f"{error.boundary}: {error.kind}: {error.detail}")
        self.error = error
        self.meta = meta
        self.usage = usage


@dataclass(frozen=True)
class Speaker:
    """Who speaks: gives each message its subject and the observed part of its record."""

    run: str
    role: Role
    host: str = ""
    replica: str = ""
    clock: Clock = field(default_factory=SystemClock)

    def entry(self, message: Message, *, cause: str | None = None, meta: Meta = UNOBSERVED) -> Entry:
        """Raises: CodecError where the body would not read back equal."""
        said_by = msgspec.structs.replace(
            meta, at_ns=self.clock.now_ns(), host=self.host, service=self.role.value, replica=self.replica, cause=cause
        )
        return Entry(subject_of(self.run, message), message.id, encode(message, said_by))


def read_event(run: str, stored: Stored) -> Event:
    """Raises: Unreadable for an unknown type, version or field, or for a record under another message's subject."""
    try:
        event = decode(stored.data, subject=stored.subject, seq=stored.seq)
    except CodecError as error:
        raise Unreadable(str(error)) from error
    if stored.subject != (due := subject_of(run, event.body)):
        raise Unreadable(f"record {stored.seq} lies under {stored.subject}, its content belongs under {due}")
    return event


def must_be_equal(message: Message) -> bool:
    """Does another body under this id, said by a decider, mean a bug? Of two RunFinished the first wins."""
    return message.nature in (Nature.decision, Nature.request) and not isinstance(message, RunFinished)


def diverged(entry: Entry, stored: Stored) -> Diverged:
    ours, theirs = raw_body(entry.data), raw_body(stored.data)
    return Diverged(entry.subject, sha256(theirs).hexdigest(), sha256(ours).hexdigest())


async def append_surely(log: EventLog, entries: Sequence[Entry], *, pause_s: float = 1.0) -> None:
    """Appends what is missing of a batch; waits for a server as long as it takes. Raises LogConflict and the like."""
    while True:
        try:
            if len(entries) > BATCH_ENTRIES_MAX:
                return await append_in_parts(log, entries)
            return await append_missing(log, entries)
        except (LogUnavailable, LogUnknown) as error:
            _LOG.warning("waiting for the log: %s", error)
        await asyncio.sleep(pause_s)


def work_error(error: Exception) -> WorkError:
    """An exception as a note carries it; what nobody gave a type has the boundary `handler`."""
    detail = str(error)[:_DETAIL_CHARS_MAX]
    if isinstance(error, TryFailed):
        return error.error
    if isinstance(error, KernelError):
        took_effect = error.took_effect is not False
        return WorkError(
            boundary=error.boundary, kind=error.kind, detail=detail, took_effect=took_effect, retry=error.retry
        )
    return WorkError(boundary="handler", kind=type(error).__name__, detail=detail, took_effect=True)
