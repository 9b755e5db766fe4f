"""The host's end of the drafts' channel: a unix socket shown to a proposer's sandbox. What comes in may be hostile."""

import asyncio
import json
import os
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from schemas.parts import GateResult
from services.kernel.archive import ArchiveError, unpack
from services.proposer.authoring.client import ARCHIVE_BYTES_MAX, FILES_MAX, VERBS

SOCKET_PATH_BYTES_MAX = 100
RECEIVE_TIMEOUT_S = 20.0
CHECKS_MAX = 16
"""Draft checks a session may ask for."""
CONNECTIONS_MAX = 4
"""At a time; one more is closed at once."""
DETAIL_CHARACTERS_MAX = 2000

Check = Callable[[bytes], Awaitable[Sequence[GateResult]]]
Submit = Callable[[bytes], Awaitable[str]]


class DraftRefusedError(Exception):
    """Raised by a callback: the draft cannot be taken; the author is told why."""


class _BadRequestError(Exception):
    """What came in is no request."""


@dataclass
class DraftChannel:
    """One session's channel."""

    check: Check
    submit: Submit
    checks_left: int = CHECKS_MAX
    receive_timeout_s: float = RECEIVE_TIMEOUT_S
    submitted: bool = False
    failures: list[BaseException] = field(default_factory=list)
    """What the callbacks raised: trouble of the host, which the author is not blamed for."""
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: one request, one answer."""
        try:
            try:
                async with asyncio.timeout(self.receive_timeout_s):
                    verb, archive = await _receive(reader)
                said = await self._serve(verb, archive)
            except _BadRequestError as error:
                said = [{"error": str(error)}]
            except TimeoutError:
                said = [{"error": f"no whole request within {self.receive_timeout_s:g} s"}]
            await _send(writer, said)
        finally:
            writer.close()

    async def _serve(self, verb: str, archive: bytes) -> list[dict[str, object]]:
        async with self._one_at_a_time:
            if self.submitted:
                return [{"refused": "a draft was submitted already: the session is over"}]
            if verb == "check":
                if self.checks_left <= 0:
                    return [{"refused": "no draft check is left: submit, or end without"}]
                self.checks_left -= 1
            work = asyncio.ensure_future(self._call(verb, archive))
            try:
                await asyncio.wait({work})
            finally:
                work.cancel()
            failure = work.exception()
            if isinstance(failure, DraftRefusedError):
                return [{"refused": str(failure)}]
            if failure is not None:
                self.failures.append(failure)
                return [{"error": "the host could not do this; the draft is not at fault"}]
            return work.result()

    async def _call(self, verb: str, archive: bytes) -> list[dict[str, object]]:
        if verb == "submit":
            message = await self.submit(archive)
            self.submitted = True
            return [{"submitted": message}]
        return [_line(result) for result in await self.check(archive)]


@asynccontextmanager
async def serve(channel: DraftChannel, socket_path: Path) -> AsyncIterator[None]:
    """Listens at `socket_path` until the block ends; the socket file is gone afterwards.

    Raises:
        ValueError: the path is too long for a unix socket.
    """
    if len(str(socket_path).encode()) > SOCKET_PATH_BYTES_MAX:
        raise ValueError(f"{socket_path} has more than {SOCKET_PATH_BYTES_MAX} bytes: choose a shorter work folder")
    connections: set[asyncio.Task[None]] = set()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(connections) >= CONNECTIONS_MAX:
            writer.close()
            return
        connection = asyncio.ensure_future(channel.answer(reader, writer))
        connections.add(connection)
        connection.add_done_callback(connections.discard)

    server = await asyncio.start_unix_server(take, socket_path)
    try:
        os.chmod(socket_path, 0o666)  # noqa: PTH101, S103 - the sandbox's user differs; its folder is private to both
        yield
    finally:
        server.close()
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()
        with suppress(FileNotFoundError):
            os.unlink(socket_path)  # noqa: PTH108


async def _receive(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """A verb and an archive that is canonical and within its bounds."""
    try:
        verb = (await reader.readuntil(b"\n")).decode("ascii").strip()
        if verb not in VERBS:
            raise _BadRequestError(f"unknown request: only {' and '.join(VERBS)} are known")
        (size,) = struct.unpack(">Q", await reader.readexactly(8))
        if size > ARCHIVE_BYTES_MAX:
            raise _BadRequestError(f"the draft has {size} bytes; {ARCHIVE_BYTES_MAX} may be sent")
        archive = await reader.readexactly(size)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, UnicodeDecodeError, ConnectionError) as error:
        raise _BadRequestError("the request is not whole") from error
    try:
        unpack(archive, files_max=FILES_MAX, bytes_max=ARCHIVE_BYTES_MAX)
    except ArchiveError as error:
        raise _BadRequestError(f"the draft is no canonical archive: {error}") from error
    return verb, archive


async def _send(writer: asyncio.StreamWriter, said: Sequence[dict[str, object]]) -> None:
    try:
        writer.write("".join(f"{json.dumps(line)}\n" for line in said).encode())
        async with asyncio.timeout(RECEIVE_TIMEOUT_S):
            await writer.drain()
    except (ConnectionError, TimeoutError):
        writer.transport.abort()


def _line(result: GateResult) -> dict[str, object]:
    return {"gate": result.gate, "outcome": result.outcome.value, "detail": result.detail[:DETAIL_CHARACTERS_MAX]}
