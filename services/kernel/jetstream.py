"""The one door to NATS: a connection with requests that fail fast, and the JetStream API as JSON.

Built on the core of nats-py alone. Its JetStream layer is left out on purpose: `publish_async` loses errors, `fetch` is
slow, ordered consumers miss resets, and atomic batches are not known to it.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

import msgspec
from nats import errors as nats_errors
from nats.aio.client import Client, Server

from services.kernel.errors import LogClosed, LogDenied, LogError, LogRefused, LogTooLarge, LogUnavailable, LogUnknown

_LOG = logging.getLogger(__name__)
_DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')
_T = TypeVar("_T")
_RECONNECT_PAUSE_S = 0.2
_BUSY = (429, 503)
"""HTTP-like codes of answers that a later retry may better: too many requests, no leader or not ready."""


class Message(Protocol):
    """A received message. `headers` holds "Status" where the server speaks and not a publisher."""

    @property
    def subject(self) -> str: ...
    @property
    def reply(self) -> str: ...
    @property
    def data(self) -> bytes: ...
    @property
    def headers(self) -> Mapping[str, str] | None: ...


Listener = Callable[[LogDenied | None], None]
"""Called with None when the connection was lost and is back, or with a denial; it picks out its own subject."""


class Connection:
    """One NATS connection that reconnects for ever. Make it with `open`."""

    def __init__(self, client: Client, url: str) -> None:
        self._client = client
        self._url = url
        self._up = asyncio.Event()
        self._inbox = ""
        self._waiting: dict[str, tuple[str, asyncio.Future[Message]]] = {}
        self._asked = 0
        self._fatal: LogError | None = None
        self._refused = asyncio.Event()
        self.listeners: set[Listener] = set()

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        name: str = "envwheel",
        user: str | None = None,
        password: str | None = None,
        inbox_prefix: str = "_INBOX",
        connect_timeout_s: float = 10.0,
    ) -> "Connection":
        """Raises: LogUnavailable where no server answers in time, LogDenied where it refuses the user."""
        client = Client()
        self = cls(client, url)
        connecting = asyncio.create_task(
            client.connect(
                servers=url.split(","),
                name=name,
                user=user,
                password=password,
                inbox_prefix=inbox_prefix,
                error_cb=self._on_error,
                disconnected_cb=self._on_disconnected,
                reconnected_cb=self._on_reconnected,
                closed_cb=self._on_closed,
                max_reconnect_attempts=-1,
                reconnect_time_wait=_RECONNECT_PAUSE_S,  # type: ignore[arg-type]  # it is slept, so a float does
                reconnect_to_server_handler=self._before_reconnect,
                ping_interval=10,
                connect_timeout=2,
            )
        )
        refused = asyncio.create_task(self._refused.wait())
        try:
            # nats-py would go on asking for ever, also where the server refuses the user.
            await asyncio.wait({connecting, refused}, timeout=connect_timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            refused.cancel()
            if not connecting.done():
                silent = LogUnavailable(f"no NATS server answers at {_plain(url)}; is it up, is the URL right?")
                self._fatal = self._fatal or silent
                connecting.cancel()
                await asyncio.wait({connecting})
                await client.close()
        if self._fatal is not None:
            raise self._fatal
        connecting.result()
        self._up.set()
        self._inbox = client.new_inbox()
        await client.subscribe(self._inbox + ".*", cb=self._on_reply)
        return self

    async def close(self) -> None:
        self._fail_waiting(LogClosed("the connection was closed"))
        try:
            await self._client.close()
        except OSError as error:
            # The server died with our last words unsent: nats-py gives up before it closes the socket.
            _LOG.warning("nats: closed without a last word: %s", error)
            self._close_socket()

    def _close_socket(self) -> None:
        if self._client._transport is not None:
            self._client._transport.close()  # type: ignore[no-untyped-call]  # nats-py types it nowhere

    def _before_reconnect(self, servers: list[Server], _info: dict[str, Any]) -> tuple[Server, float]:
        """The server that was tried least. Where one died while it said hello, nats-py forgets the open socket."""
        self._close_socket()
        chosen = min(servers, key=lambda server: server.reconnects)
        return chosen, _RECONNECT_PAUSE_S if chosen.reconnects else 0.0

    async def request(
        self, subject: str, data: bytes, headers: Mapping[str, str] | None = None, *, timeout_s: float = 5.0
    ) -> Message:
        """Sends and waits for one answer.

        Raises: LogUnknown (no answer in time, or the connection broke in between), LogUnavailable (nothing was sent, or
        nobody listens on the subject), LogDenied, LogTooLarge.
        """
        self._asked += 1
        token = str(self._asked)
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_up()
                self._waiting[token] = (subject, future)
                await self.publish(subject, data, headers, reply=f"{self._inbox}.{token}")
                message = await future
        except TimeoutError as error:
            if token not in self._waiting:
                raise LogUnavailable(f"no connection to {_plain(self._url)}") from error
            raise LogUnknown(f"no answer on {subject} within {timeout_s:g} s") from error
        finally:
            self._waiting.pop(token, None)
            future.cancel()
        if not message.data and (message.headers or {}).get("Status") == "503":
            raise LogUnavailable(f"nobody answers on {subject}: no such stream or consumer, or its server is starting")
        return message

    async def publish(
        self, subject: str, data: bytes, headers: Mapping[str, str] | None = None, *, reply: str = ""
    ) -> None:
        """Hands the message to the connection; nothing says that it arrived."""
        if self._fatal is not None:
            raise self._fatal
        try:
            await self._client.publish(subject, data, reply=reply, headers=dict(headers) if headers else None)
        except nats_errors.MaxPayloadError as error:
            raise LogTooLarge(f"{subject}: {len(data)} bytes are over the server's max_payload") from error
        except nats_errors.ConnectionClosedError as error:
            raise LogClosed(f"the connection to {_plain(self._url)} is closed") from error
        except nats_errors.OutboundBufferLimitError as error:
            raise LogUnavailable(f"no connection to {_plain(self._url)}: {error}") from error

    async def api(
        self, call: str, payload: Mapping[str, Any] | None = None, *, timeout_s: float = 5.0
    ) -> dict[str, Any]:
        """One call of the JetStream API, e.g. `STREAM.INFO.run_x`. Raises also LogRefused with the server's code."""
        message = await self.request(f"$JS.API.{call}", msgspec.json.encode(payload or {}), timeout_s=timeout_s)
        return answer(call, message.data)

    async def subscribe(
        self, receive: Callable[[Message], Awaitable[None]]
    ) -> tuple[str, Callable[[], Awaitable[None]]]:
        """A fresh inbox whose messages go to `receive`; returns its name and what ends it."""
        inbox = self._client.new_inbox()
        # The number of messages on the way is bounded by what was pulled, so nats-py must not drop any.
        subscription = await self._client.subscribe(inbox, cb=receive, pending_msgs_limit=0, pending_bytes_limit=0)

        async def end() -> None:
            if not self._client.is_closed:
                await subscription.unsubscribe()

        return inbox, end

    async def _wait_up(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        await self._up.wait()

    async def _on_reply(self, message: Message) -> None:
        waiting = self._waiting.get(message.subject.rpartition(".")[2])
        if waiting is not None and not waiting[1].done():
            waiting[1].set_result(message)

    async def _on_error(self, error: Exception) -> None:
        denied = _DENIED.search(str(error))
        if "authorization violation" in str(error).lower():
            self._fatal = LogDenied("connect", _plain(self._url))
            self._refused.set()
            self._fail_waiting(self._fatal)
        elif denied is None:
            _LOG.warning("nats: %s", error)
            if not self._inbox and self._client.is_connecting:
                self._close_socket()
        else:
            self._on_denied(LogDenied(*denied.groups()), denied.group(1))

    def _on_denied(self, denial: LogDenied, operation: str) -> None:
        # nats-py lower-cases what the server says, so subjects are compared in lower case.
        if operation == "subscription" and denial.subject.startswith(self._inbox.lower() or "\0"):
            self._fatal = denial
            self._fail_waiting(denial)
        for asked, future in list(self._waiting.values()):
            if asked.lower() == denial.subject and not future.done():
                future.set_exception(denial)
        for listener in list(self.listeners):
            listener(denial)

    async def _on_disconnected(self) -> None:
        self._up.clear()
        self._fail_waiting(LogUnknown("the connection broke before the answer came"))

    async def _on_reconnected(self) -> None:
        self._up.set()
        for listener in list(self.listeners):
            listener(None)

    async def _on_closed(self) -> None:
        self._fatal = self._fatal or LogClosed(f"the connection to {_plain(self._url)} is closed")
        self._fail_waiting(self._fatal)
        self._up.set()  # whoever waits for it finds `_fatal`
        for listener in list(self.listeners):
            listener(None)

    def _fail_waiting(self, error: LogError) -> None:
        for _, future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(error)


def answer(what: str, data: bytes) -> dict[str, Any]:
    """Decodes a JetStream answer. Raises: LogUnavailable where a retry may help, LogRefused otherwise."""
    decoded = cast(dict[str, Any], msgspec.json.decode(data))
    if (error := decoded.get("error")) is not None:
        code, description = int(error.get("err_code", 0)), str(error.get("description", ""))
        if error.get("code") in _BUSY:
            raise LogUnavailable(f"{what}: {description} (nats error {code})")
        raise LogRefused(what, code, description)
    return decoded


async def patiently(call: Callable[[], Awaitable[_T]], patience_s: float) -> _T:
    """Repeats a call that may be repeated until it answers. Raises the last error when the patience is at its end."""
    loop = asyncio.get_running_loop()
    deadline_s, pause_s = loop.time() + patience_s, 0.02
    while True:
        try:
            return await call()
        except (LogUnknown, LogUnavailable):
            if loop.time() + pause_s > deadline_s:
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, 1.0)


def _plain(url: str) -> str:
    """The URL without its credentials."""
    return re.sub(r"//[^@/]*@", "//", url)
