"""A scripted OpenAI-compatible server on loopback: it says what a test tells it to say, well or badly."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 40}}


@dataclass
class Reply:
    """One HTTP answer. `stall_s` waits before the last byte; `cut` closes the connection before it."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    stall_s: float = 0.0
    cut: bool = False


Make: TypeAlias = Callable[[dict[str, Any]], Reply]
"""From the request's body to an answer."""


def whole(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> Reply:
    """An answer in one body."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return Reply(body=json.dumps({"model": "scripted", "choices": [choice], "usage": USAGE, **more}).encode())


def streamed(pieces: Sequence[dict[str, Any]], finish: str | None = "stop", *, done: bool = True) -> Reply:
    """The same as a stream: one delta a piece, the finish, the usage, `[DONE]`."""
    events: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": piece, "finish_reason": None}]} for piece in pieces
    ]
    if finish is not None:
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    events.append({"model": "scripted", "choices": [], "usage": USAGE})
    lines = [f"data: {json.dumps(event)}\n\n" for event in events] + (["data: [DONE]\n\n"] if done else [])
    return Reply(body="".join(lines).encode(), content_type="text/event-stream")


def text(said: str, finish: str = "stop") -> Reply:
    """A streamed text in two pieces."""
    middle = len(said) // 2
    return streamed([{"role": "assistant", "content": said[:middle]}, {"content": said[middle:]}], finish)


def block(command: str) -> Reply:
    return text(f"I will do this.\n```bash\n{command}\n```\n")


def call(command: str, *, name: str = "shell", arguments: str | None = None, finish: str = "tool_calls") -> Reply:
    """A streamed tool call whose arguments come in two pieces."""
    written = json.dumps({"command": command}) if arguments is None else arguments
    middle = len(written) // 2
    head = {"index": 0, "id": "call-1", "type": "function", "function": {"name": name, "arguments": written[:middle]}}
    tail = {"index": 0, "function": {"arguments": written[middle:]}}
    return streamed([{"tool_calls": [head]}, {"tool_calls": [tail]}], finish)


def refused(status: int, message: str, **headers: str) -> Reply:
    body = json.dumps({"error": {"message": message, "code": None}}).encode()
    return Reply(status=status, body=body, headers=headers)


@dataclass
class ChatServer:
    """Answers in the order of `replies`; the last one is said for ever."""

    replies: list[Reply | Make]
    port: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = [line.split(": ", 1) for line in head[1:] if ": " in line]
        headers = {name.lower(): value for name, value in pairs}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))))
        self.headers.append(headers)
        self.requests.append(body)
        made = self.replies[min(len(self.requests), len(self.replies)) - 1]
        reply = made if isinstance(made, Reply) else made(body)
        lines = [f"HTTP/1.1 {reply.status} x", f"content-type: {reply.content_type}"]
        lines += [f"content-length: {len(reply.body)}", *(f"{name}: {value}" for name, value in reply.headers.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + reply.body[:-1])
        await writer.drain()
        if reply.stall_s:
            await asyncio.sleep(reply.stall_s)
        if reply.cut:
            return False
        writer.write(reply.body[-1:])
        await writer.drain()
        return True


@asynccontextmanager
async def chat_server(*replies: Reply | Make) -> AsyncIterator[ChatServer]:
    scripted = ChatServer(list(replies))
    connections: set[asyncio.Task[None]] = set()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.ensure_future(scripted.serve(reader, writer))
        connections.add(connection)
        connection.add_done_callback(connections.discard)

    server = await asyncio.start_server(take, "127.0.0.1", 0, limit=2**24)
    scripted.port = server.sockets[0].getsockname()[1]
    try:
        yield scripted
    finally:
        server.close()
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()
