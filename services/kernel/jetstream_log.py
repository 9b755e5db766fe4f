"""The event log on NATS JetStream: one stream a run, on disk when acknowledged, each subject taken once."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import uuid4

from services.kernel.errors import LogError, LogRefused, LogUnavailable, LogUnknown
from services.kernel.jetstream import Connection, answer, patiently
from services.kernel.jetstream_consume import JetStreamQueue, open_queue, read_stream
from services.kernel.log import ENTRY_BYTES_MAX, EVERYTHING, Appended, Entry, Same, Stored, check_entries, resolve

_FREE_SUBJECT = {"Nats-Expected-Last-Subject-Sequence": "0"}
"""Makes an append create-only for ever; the server's duplicate window forgets, this does not."""
_TAKEN = (10071, 10201)
"""Wrong last sequence of the subject; an atomic batch holds a known id."""
_OTHER_SETTINGS = 10058
_BATCH_BROKEN = (10176, 10210, 10211)
"""A batch lost a part on the way or waits behind too many others: it stored nothing and may be sent again."""
_WORM: dict[str, Any] = {
    "storage": "file",
    "retention": "limits",
    "discard": "new",
    "deny_delete": True,
    "deny_purge": True,
    "allow_direct": True,
    "allow_atomic": True,
    "max_age": 0,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_msgs_per_subject": -1,
}


class JetStreamLog:
    """One run's stream `run_<run>`. The server must run with `sync_interval: always` (kernel.nats_server does)."""

    def __init__(
        self,
        connection: Connection,
        run: str,
        same: Same,
        *,
        patience_s: float = 30.0,
        entry_bytes_max: int = ENTRY_BYTES_MAX,
    ) -> None:
        self.run = run
        self.stream = f"run_{run}"
        self._connection = connection
        self._same = same
        self._patience_s = patience_s
        self._entry_bytes_max = entry_bytes_max

    async def create(self, *, replicas: int = 1) -> None:
        """Makes the stream; one that is there is taken as it is, with the bound on entries that it was made with.

        Raises: LogRefused where a stream of that name has other settings, so that records could be lost or changed.
        """
        config = _WORM | {
            "name": self.stream,
            "subjects": [f"{self.run}.>"],
            "num_replicas": replicas,
            "max_msg_size": self._entry_bytes_max + 2**10,
        }
        try:
            await patiently(partial(self._connection.api, f"STREAM.CREATE.{self.stream}", config), self._patience_s)
        except LogRefused as refused:
            if refused.code != _OTHER_SETTINGS:
                raise
        await self.check()

    async def check(self) -> None:
        """Raises: LogRefused where the stream is missing or its settings would let records be lost or changed."""
        config = (await self._info())["config"]
        wrong = {key: config.get(key) for key, want in _WORM.items() if config.get(key, 0) != want}
        if wrong:
            raise LogRefused(f"stream {self.stream}", 0, f"not write-once and durable: {wrong}")

    async def append(self, entries: Sequence[Entry]) -> Appended:
        check_entries(self.run, entries, self._entry_bytes_max)
        loop = asyncio.get_running_loop()
        deadline_s, pause_s = loop.time() + self._patience_s, 0.02
        uncertain = False
        while True:
            try:
                seqs = await (self._publish_one(entries[0]) if len(entries) == 1 else self._publish_batch(entries))
                return Appended(seqs, stored=True)
            except LogRefused as refused:
                if refused.code in _TAKEN:
                    # Perhaps by ourselves: an earlier try whose answer was lost. Who holds the subjects decides.
                    present = [await self.get(entry.subject) for entry in entries]
                    if any(present):
                        return resolve(entries, present, self._same)
                elif refused.code not in _BATCH_BROKEN:
                    raise
                failure: LogError = refused
            except (LogUnknown, LogUnavailable) as error:
                uncertain = uncertain or isinstance(error, LogUnknown)
                failure = error
            if loop.time() + pause_s > deadline_s:
                kind = LogUnknown if uncertain else LogUnavailable
                raise kind(f"{entries[0].subject}: gave up after {self._patience_s:g} s: {failure}") from failure
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)

    async def _publish_one(self, entry: Entry) -> tuple[int, ...]:
        message = await self._connection.request(entry.subject, entry.data, _FREE_SUBJECT)
        return (int(answer(entry.subject, message.data)["seq"]),)

    async def _publish_batch(self, entries: Sequence[Entry]) -> tuple[int, ...]:
        batch = {"Nats-Batch-Id": uuid4().hex} | _FREE_SUBJECT
        for number, entry in enumerate(entries[:-1], 1):
            await self._connection.publish(entry.subject, entry.data, batch | {"Nats-Batch-Sequence": str(number)})
        commit = batch | {"Nats-Batch-Sequence": str(len(entries)), "Nats-Batch-Commit": "1"}
        message = await self._connection.request(entries[-1].subject, entries[-1].data, commit, timeout_s=10.0)
        last = int(answer(entries[-1].subject, message.data)["seq"])
        return tuple(range(last - len(entries) + 1, last + 1))

    def read(
        self, after: int = 0, subjects: tuple[str, ...] = EVERYTHING, *, follow: bool = False
    ) -> AsyncGenerator[Stored, None]:
        end = None if follow else self.last_seq
        return read_stream(self._connection, self.stream, after, subjects, end, self._patience_s)

    async def last_seq(self) -> int:
        return int((await self._info())["state"]["last_seq"])

    async def _info(self) -> dict[str, Any]:
        return await patiently(partial(self._connection.api, f"STREAM.INFO.{self.stream}"), self._patience_s)

    async def get(self, subject: str) -> Stored | None:
        # By subject, so that a user can be given the right to some subjects and not to others.
        ask = partial(self._connection.request, f"$JS.API.DIRECT.GET.{self.stream}.{subject}", b"")
        message = await patiently(ask, self._patience_s)
        headers = message.headers or {}
        if headers.get("Status") == "404":
            return None
        if "Nats-Sequence" not in headers:
            raise LogRefused(f"get {subject}", int(headers.get("Status", 0)), headers.get("Description", "no record"))
        return Stored(int(headers["Nats-Sequence"]), subject, message.data, _time_ns(headers["Nats-Time-Stamp"]))

    async def work(
        self, durable: str, subjects: tuple[str, ...], *, ack_wait_s: float = 30.0, in_flight_max: int = 64
    ) -> JetStreamQueue:
        return await open_queue(
            self._connection, self.stream, durable, subjects, ack_wait_s, in_flight_max, self._patience_s
        )

    async def close(self) -> None:
        await self._connection.close()


async def connect(
    url: str,
    run: str,
    same: Same,
    *,
    create: bool = False,
    patience_s: float = 30.0,
    name: str = "envwheel",
    user: str | None = None,
    password: str | None = None,
    inbox_prefix: str = "_INBOX",
) -> JetStreamLog:
    """A log over a connection of its own; `close` ends both. `create` makes the stream where it is missing.

    Raises: LogUnavailable where no server answers, LogDenied, LogRefused where the stream is missing or not write-once.
    """
    connection = await Connection.open(url, name=name, user=user, password=password, inbox_prefix=inbox_prefix)
    log = JetStreamLog(connection, run, same, patience_s=patience_s)
    try:
        await (log.create() if create else log.check())
    except BaseException:
        await connection.close()
        raise
    return log


def _time_ns(text: str) -> int:
    """RFC 3339 in UTC with up to nine digits of fraction, as the server writes it."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return int(datetime.fromisoformat(whole + "+00:00").timestamp()) * 10**9 + int(fraction.ljust(9, "0"))
