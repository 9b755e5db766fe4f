"""Reading a stream and taking work from it, by raw pulls: a callback fills a buffer, the reader empties it."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec

from services.kernel.errors import LogDenied, LogError, LogGap, LogUnavailable, LogUnknown
from services.kernel.jetstream import Connection, Message, patiently
from services.kernel.log import EVERYTHING, Stored

_PULL_MESSAGES = 500
_PULL_EXPIRES_S = 30.0
_HEARTBEAT_S = 4.0
_SILENCE_S = 10.0
"""Without a message or heartbeat for so long, the server has forgotten our pull."""
_WORK_PULL_S = 5.0
_SETTLE_PATIENCE_S = 3.0
"""A killed server may have forgotten a delivery and never answers its ack; the work comes again, and is acked then."""
_NS = 10**9


@dataclass(frozen=True, slots=True)
class _Delivered:
    """What the server writes into the reply subject of a delivered message."""

    deliveries: int
    seq: int
    consumer_seq: int
    time_ns: int
    pending: int


def _delivered(reply: str) -> _Delivered:
    tokens = reply.split(".")
    # $JS.ACK.[domain.account.]stream.consumer.deliveries.seq.consumer_seq.time.pending[.random]
    first = 4 if len(tokens) == 9 else 6
    return _Delivered(*(int(token) for token in tokens[first : first + 5]))


def _status(message: Message) -> str | None:
    """The status code where the server speaks for itself, None for a record."""
    return None if message.reply.startswith("$JS.ACK.") else (message.headers or {}).get("Status", "")


class _Inbox:
    """Messages of one pull subscription, and the news of its connection."""

    def __init__(self, connection: Connection, ask_subject: str) -> None:
        self._connection = connection
        self._ask_subject = ask_subject
        self._messages: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._denied: LogDenied | None = None
        self._name = ""
        self._end: Callable[[], Awaitable[None]] | None = None
        self.broken = False
        """True once the connection was lost: what was asked for before is forgotten by the server."""

    async def open(self) -> None:
        self._name, self._end = await self._connection.subscribe(self._receive)
        self._connection.listeners.add(self._hear)

    async def close(self) -> None:
        self._connection.listeners.discard(self._hear)
        if self._end is not None:
            await self._end()

    async def ask(self, pull: dict[str, Any]) -> None:
        await self._connection.publish(self._ask_subject, msgspec.json.encode(pull), reply=self._name)

    async def wait(self, timeout_s: float) -> bool:
        """Waits until there is something to take, or news. False: nothing came in time."""
        if self._messages or self.broken:
            return True
        self._arrived.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()
        except TimeoutError:
            return False
        if self._denied is not None:
            raise self._denied
        return True

    def take(self) -> Message | None:
        return self._messages.popleft() if self._messages else None

    async def _receive(self, message: Message) -> None:
        self._messages.append(message)
        self._arrived.set()

    def _hear(self, denial: LogDenied | None) -> None:
        if denial is None:
            self.broken = True
        elif denial.subject in (self._ask_subject.lower(), self._name.lower()):
            self._denied = denial
        else:
            return
        self._arrived.set()


class _Feed:
    """One short-lived consumer that needs no acks. It is thrown away and made anew whenever anything looks odd."""

    def __init__(self, connection: Connection, stream: str) -> None:
        self._connection = connection
        self._stream = stream
        self._name = f"read_{uuid4().hex}"
        self._inbox = _Inbox(connection, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{self._name}")
        self._on_the_way = 0
        self._consumer_seq = 0
        self.pending = 0
        """Records that matched when the consumer was made."""

    async def open(self, after: int, subjects: tuple[str, ...], patience_s: float) -> None:
        config: dict[str, Any] = {
            "name": self._name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": after + 1,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": 60 * _NS,
        }
        call = f"CONSUMER.CREATE.{self._stream}.{self._name}"
        if len(subjects) > 1:
            config["filter_subjects"] = list(subjects)
        elif subjects != EVERYTHING:
            # Named in the subject too, so that a user can be given the right to this filter and no other.
            config["filter_subject"] = subjects[0]
            call += f".{subjects[0]}"
        request = {"stream_name": self._stream, "config": config, "action": ""}
        made = await patiently(partial(self._connection.api, call, request), patience_s)
        self.pending = int(made.get("num_pending", 0))
        await self._inbox.open()

    async def close(self) -> None:
        await self._inbox.close()
        try:
            await self._connection.api(f"CONSUMER.DELETE.{self._stream}.{self._name}", timeout_s=1.0)
        except LogError:
            return  # the server drops it after `inactive_threshold`

    async def take(self) -> list[Message] | None:
        """Records as they came, at least one; None: make a new feed from the last one seen."""
        while True:
            await self._pull()
            if not await self._inbox.wait(_SILENCE_S) or self._inbox.broken:
                return None
            records: list[Message] = []
            while (message := self._inbox.take()) is not None:
                status = _status(message)
                if status is None:
                    self._on_the_way -= 1
                    records.append(message)
                elif status in ("404", "408"):
                    unsent = (message.headers or {}).get("Nats-Pending-Messages")
                    self._on_the_way -= int(unsent) if unsent else self._on_the_way
                elif status != "100":
                    return records or None
            if records:
                return records

    async def _pull(self) -> None:
        while self._on_the_way <= _PULL_MESSAGES:
            beat_ns, expires_ns = int(_HEARTBEAT_S * _NS), int(_PULL_EXPIRES_S * _NS)
            await self._inbox.ask({"batch": _PULL_MESSAGES, "expires": expires_ns, "idle_heartbeat": beat_ns})
            self._on_the_way += _PULL_MESSAGES

    def in_order(self, consumer_seq: int) -> bool:
        """False where a message was lost between the server and here."""
        self._consumer_seq += 1
        return consumer_seq == self._consumer_seq


async def read_stream(
    connection: Connection,
    stream: str,
    after: int,
    subjects: tuple[str, ...],
    end: Callable[[], Awaitable[int]] | None,
    patience_s: float,
) -> AsyncGenerator[Stored, None]:
    """Records behind `after`, in order, each once; up to the position that `end` gives at the start, or for ever."""
    last = None if end is None else await end()
    while last is None or after < last:
        feed = _Feed(connection, stream)
        try:
            await feed.open(after, subjects, patience_s)
            if last is not None and feed.pending == 0:
                return
            async for stored in _records(feed, after, gapless=subjects == EVERYTHING):
                after = stored.seq
                yield stored
                if last is not None and (after >= last or stored.remaining == 0):
                    return
        except (LogUnavailable, LogUnknown):
            await asyncio.sleep(0.1)
        finally:
            await feed.close()


async def _records(feed: _Feed, after: int, *, gapless: bool) -> AsyncGenerator[Stored, None]:
    """The feed's records until it has to be made anew."""
    while (messages := await feed.take()) is not None:
        for message in messages:
            told = _delivered(message.reply)
            if not feed.in_order(told.consumer_seq):
                return
            if gapless and told.seq != after + 1:
                raise LogGap(f"position {after + 1} of the stream is missing, the next one is {told.seq}")
            after = told.seq
            yield Stored(told.seq, message.subject, message.data, told.time_ns, told.pending)


async def open_queue(
    connection: Connection,
    stream: str,
    durable: str,
    subjects: tuple[str, ...],
    ack_wait_s: float,
    in_flight_max: int,
    patience_s: float,
) -> "JetStreamQueue":
    """Makes the durable consumer, or gives the one that is there these settings."""
    config = {
        "durable_name": durable,
        "name": durable,
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": int(ack_wait_s * _NS),
        "max_deliver": -1,
        "max_ack_pending": in_flight_max,
        "filter_subjects": list(subjects),
    }
    request = {"stream_name": stream, "config": config, "action": ""}
    await patiently(partial(connection.api, f"CONSUMER.CREATE.{stream}.{durable}", request), patience_s)
    queue = JetStreamQueue(connection, stream, durable)
    await queue.open()
    return queue


class JetStreamQueue:
    def __init__(self, connection: Connection, stream: str, durable: str) -> None:
        self._connection = connection
        self._inbox = _Inbox(connection, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}")
        self._asked_until_s = 0.0
        """Until then the server may still answer the last pull; so one free slot never holds two messages."""

    async def open(self) -> None:
        await self._inbox.open()

    async def next(self, timeout_s: float) -> "JetStreamDelivery | None":
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while True:
            while (message := self._inbox.take()) is not None:
                self._asked_until_s = 0.0
                if (status := _status(message)) is None:
                    told = _delivered(message.reply)
                    stored = Stored(told.seq, message.subject, message.data, told.time_ns, told.pending)
                    return JetStreamDelivery(self._connection, message.reply, stored, told.deliveries)
                if status not in ("404", "408"):
                    await asyncio.sleep(min(0.1, timeout_s))
            now_s = loop.time()
            if now_s >= deadline_s:
                return None
            if self._inbox.broken or now_s >= self._asked_until_s:
                await self._pull(min(deadline_s - now_s, _WORK_PULL_S))
            await self._inbox.wait(min(deadline_s, self._asked_until_s) - now_s)

    async def _pull(self, expires_s: float) -> None:
        self._inbox.broken = False
        # Half a second for the server's "nothing came" to arrive before we ask again.
        self._asked_until_s = asyncio.get_running_loop().time() + expires_s + 0.5
        try:
            await self._inbox.ask({"batch": 1, "expires": max(int(expires_s * _NS), 10**6)})
        except LogUnavailable:
            self._asked_until_s = asyncio.get_running_loop().time() + 0.1

    async def close(self) -> None:
        """Hands back what came and was not taken."""
        await self._inbox.close()
        while (message := self._inbox.take()) is not None:
            if _status(message) is None:
                with suppress(LogError):  # then it comes again after its `ack_wait_s`
                    await self._connection.publish(message.reply, b"-NAK")


@dataclass(frozen=True, slots=True)
class JetStreamDelivery:
    connection: Connection
    reply: str
    stored: Stored
    deliveries: int

    async def ack(self) -> None:
        await self._settle(b"+ACK")

    async def nak(self, delay_s: float = 0.0) -> None:
        await self._settle(b"-NAK " + msgspec.json.encode({"delay": int(delay_s * _NS)}) if delay_s > 0 else b"-NAK")

    async def progress(self) -> None:
        await self.connection.publish(self.reply, b"+WPI")

    async def _settle(self, word: bytes) -> None:
        await patiently(partial(self.connection.request, self.reply, word, timeout_s=2.0), _SETTLE_PATIENCE_S)
