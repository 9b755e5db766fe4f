"""The decider loop: reads all that its role may read, in order, and appends what the pure policy says.

Every replica may run one. While it catches up it appends nothing: what it decided is on the log already, or is still
pending when the end is reached. Equal bodies under an id are one message; other bodies stop it.
"""

import logging
from contextlib import aclosing
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, Protocol, TypeVar

from schemas.codec import body_digest
from schemas.envelope import Event
from schemas.messages import Message
from services.kernel.delivery import Speaker, append_surely, diverged, must_be_equal, read_event
from services.kernel.errors import Diverged
from services.kernel.log import Entry, EventLog, LogConflict, Stored

_LOG = logging.getLogger(__name__)
_PENDING_MAX = 4096
"""Unseen messages held in memory; beyond that they are appended although the end of the log is not reached."""
View = TypeVar("View")


class Policy(Protocol[View]):
    """A policy module. Pure: equal events in equal order give equal messages."""

    @property
    def VERSION(self) -> int:
        """Another one decides otherwise; RunStarted pins it."""
        ...

    def initial(self) -> View: ...
    def fold(self, view: View, event: Event, /) -> View: ...
    def decide(self, view: View, event: Event, /) -> list[Message]: ...


@dataclass(frozen=True)
class _Pending:
    message: Message
    body_digest: str
    cause: str
    cause_seq: int


class Decider(Generic[View]):
    """`run` goes on until it is cancelled or stops for a reason that `trouble` keeps."""

    def __init__(self, log: EventLog, policy: Policy[View], speaker: Speaker, subjects: tuple[str, ...]) -> None:
        self._log = log
        self._policy = policy
        self._speaker = speaker
        self._subjects = subjects
        self._pending: dict[str, _Pending] = {}
        self.view = policy.initial()
        self.position = 0
        """Of the last record that is folded into `view`."""
        self.caught_up = False
        """True when `position` was the end of what this role may read and all that follows from it was appended."""
        self.trouble: str | None = None
        """Why it stopped; None: healthy."""

    async def run(self) -> None:
        """Raises: Unreadable, Diverged, and what an append raises that waiting does not mend."""
        try:
            async with aclosing(self._log.read(self.position, self._subjects, follow=True)) as records:
                async for stored in records:
                    await self._take(stored)
        except Exception as error:
            self.trouble = f"stopped behind position {self.position}: {error}"
            raise

    async def _take(self, stored: Stored) -> None:
        self.caught_up = False
        event = read_event(self._speaker.run, stored)
        ours = self._pending.pop(event.id, None)
        if ours is not None and ours.body_digest != event.body_digest and must_be_equal(ours.message):
            raise Diverged(stored.subject, event.body_digest, ours.body_digest)
        self.view = self._policy.fold(self.view, event)
        for message in self._policy.decide(self.view, event):
            self._remember(message, event)
        self.position = stored.seq
        if stored.remaining == 0 or len(self._pending) >= _PENDING_MAX:
            await self._append_pending()
        self.caught_up = stored.remaining == 0

    def _remember(self, message: Message, event: Event) -> None:
        digest = body_digest(message)
        earlier = self._pending.setdefault(message.id, _Pending(message, digest, event.id, event.seq))
        if earlier.body_digest != digest:
            raise Diverged(f"{message.name} {message.id}, decided twice", earlier.body_digest, digest)

    async def _append_pending(self) -> None:
        """In decided order; what follows from one event is one atomic batch."""
        for _, group in groupby(list(self._pending.values()), key=lambda pending: pending.cause_seq):
            entries = [self._speaker.entry(pending.message, cause=pending.cause) for pending in group]
            await self._append(entries)
            for entry in entries:
                del self._pending[entry.id]

    async def _append(self, entries: list[Entry]) -> None:
        while entries:
            try:
                await append_surely(self._log, entries)
            except LogConflict as conflict:
                for entry, stored in conflict.taken:
                    if must_be_equal(self._pending[entry.id].message):
                        raise diverged(entry, stored) from conflict
                    # A worker's own answer came before the one that gives its work up: the earlier counts.
                    _LOG.info("%s is answered already", entry.subject)
                taken = {entry.id for entry, _ in conflict.taken}
                entries = [entry for entry in entries if entry.id not in taken]
            else:
                return
