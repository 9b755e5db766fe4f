"""Asks a chat endpoint: streams the answer, bounds it, and tries again where that can help."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import httpx2

from services.kernel.models.chat.endpoint import Endpoint
from services.kernel.models.chat.errors import (
    AnswerUnreadableError,
    ContextOverflowError,
    EndpointError,
    EndpointRefusedError,
    EndpointUnavailableError,
)
from services.kernel.models.chat.message import ChatAnswer, ChatRequest, TokenUsage
from services.kernel.models.chat.reading import Assembly
from services.kernel.spool import count_tokens

CONNECT_TIMEOUT_S = 20.0
PAUSE_S_MAX = 60.0
ERROR_BYTES_MAX = 64 * 1024
ERROR_CHARS_MAX = 300
_BUSY = (408, 409, 425, 429)
_OVERFLOW_WORDS = (
    "context_length_exceeded",
    "maximum context length",
    "max_model_len",
    "context length",
    "context window",
)


class ChatClient:
    """One endpoint, for many conversations at a time. Made inside the event loop that uses it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.answered = TokenUsage()
        self.wasted = TokenUsage()
        """Tokens of answers that came and could not be used: they are paid all the same."""
        headers = dict(endpoint.headers)
        if endpoint.key is not None:
            headers["Authorization"] = f"Bearer {endpoint.key.reveal()}"
        self._http = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(endpoint.silence_s, connect=min(CONNECT_TIMEOUT_S, endpoint.silence_s)),
            follow_redirects=False,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    @property
    def spent(self) -> TokenUsage:
        """Tokens of all answers so far."""
        return self.answered + self.wasted

    async def ask(self, request: ChatRequest) -> ChatAnswer:
        """One answer; it may be cut off (`finish == "length"`), also by `answer_bytes_max`.

        Raises:
            EndpointUnavailableError, AnswerUnreadableError: also after the last try.
            EndpointRefusedError, ContextOverflowError: at once.
        """
        pause_s = self.endpoint.pause_s
        for left in range(self.endpoint.tries_max - 1, -1, -1):
            try:
                answer = await self._try(request)
            except EndpointError as error:
                if not error.retry or left == 0:
                    raise
                asked_s = error.pause_s or 0.0
            else:
                self.answered += answer.usage
                _count(answer.usage)
                return answer
            await asyncio.sleep(min(PAUSE_S_MAX, max(asked_s, pause_s)))
            pause_s *= 2
        raise EndpointUnavailableError(f"{self._name}: no try is allowed")

    @property
    def _name(self) -> str:
        return f"endpoint {self.endpoint.name!r}"

    async def _try(self, request: ChatRequest) -> ChatAnswer:
        assembly = Assembly()
        body = request.wire(stream=self.endpoint.stream)
        prompt_bytes = len(json.dumps(body["messages"]).encode())
        try:
            async with self._answered(body) as response:
                await self._read(response, assembly)
        except httpx2.TimeoutException as error:
            raise EndpointUnavailableError(
                f"{self._name} at {self.endpoint.url}: silent for {self.endpoint.silence_s:g} s"
            ) from error
        except httpx2.TransportError as error:
            raise EndpointUnavailableError(f"{self._name} at {self.endpoint.url}: {self._clean(str(error))}") from None
        except AnswerUnreadableError as error:
            self._waste(assembly.answer(prompt_bytes=prompt_bytes).usage)
            # Without its cause: that would quote what the server said, which may be our key.
            raise AnswerUnreadableError(f"{self._name}: {self._clean(str(error))}") from None
        if not assembly.finish:
            self._waste(assembly.answer(prompt_bytes=prompt_bytes).usage)
            raise AnswerUnreadableError(f"{self._name}: the answer ended before it was finished")
        return assembly.answer(prompt_bytes=prompt_bytes)

    def _waste(self, usage: TokenUsage) -> None:
        self.wasted += usage
        _count(usage)

    @asynccontextmanager
    async def _answered(self, body: dict[str, Any]) -> AsyncIterator[httpx2.Response]:
        url = f"{self.endpoint.url.rstrip('/')}/chat/completions"
        async with self._http.stream("POST", url, json=body) as response:
            if response.status_code != httpx2.codes.OK:
                raise self._error(response, await _head(response, ERROR_BYTES_MAX))
            yield response

    async def _read(self, response: httpx2.Response, assembly: Assembly) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "text/event-stream":
            raw = await _head(response, self.endpoint.answer_bytes_max + 1)
            if len(raw) > self.endpoint.answer_bytes_max:
                raise AnswerUnreadableError(f"an answer of more than {self.endpoint.answer_bytes_max} bytes")
            assembly.take(_json(raw))
            return
        try:
            async for event in httpx2.EventSource(response, max_event_size=self.endpoint.answer_bytes_max):
                if event.data.strip() == "[DONE]":
                    return
                assembly.bytes_seen += len(event.data)
                if assembly.bytes_seen > self.endpoint.answer_bytes_max:
                    assembly.finish = "length"
                    return
                assembly.take(_piece(event.data))
        except (httpx2.SSEError, httpx2.DecodingError) as error:
            raise AnswerUnreadableError(f"a damaged stream: {error}") from error

    def _error(self, response: httpx2.Response, raw: bytes) -> EndpointError:
        said = self._clean(_message(raw))
        text = f"{self._name}: HTTP {response.status_code}: {said}"
        if response.status_code in _BUSY or response.status_code >= 500:
            unavailable = EndpointUnavailableError(text)
            unavailable.pause_s = _asked_pause_s(response)
            return unavailable
        if response.status_code in (400, 413) and any(word in said.lower() for word in _OVERFLOW_WORDS):
            return ContextOverflowError(text)
        return EndpointRefusedError(text)

    def _clean(self, text: str) -> str:
        """Fit for an error: short, and without the key."""
        key = self.endpoint.key
        return (key.hide_in(text) if key else text)[:ERROR_CHARS_MAX]


def _count(usage: TokenUsage) -> None:
    count_tokens(
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
    )


def _piece(data: str) -> Any:
    """One event of a stream; a server that fails half-way says so in an event of its own."""
    body = _json(data.encode())
    if isinstance(body, dict) and isinstance(body.get("error"), dict | str):
        raise AnswerUnreadableError(f"the server broke off: {_message(data.encode())}")
    return body


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise AnswerUnreadableError(f"no JSON: {raw[:60]!r}") from error


def _message(raw: bytes) -> str:
    """What an error body says, in OpenAI's shape or any other."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return raw.decode("utf-8", "replace")
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        return " ".join(str(error[key]) for key in ("message", "code") if error.get(key)) or str(error)
    return str(error)


def _asked_pause_s(response: httpx2.Response) -> float | None:
    """Seconds of Retry-After; None where there are none (RFC 9110 10.2.3; its date form is not used by endpoints)."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None


async def _head(response: httpx2.Response, bytes_max: int) -> bytes:
    found = bytearray()
    async for chunk in response.aiter_bytes():
        found += chunk
        if len(found) >= bytes_max:
            break
    return bytes(found[:bytes_max])
