"""The host's end of the drafts' channel: a unix socket shown to a proposer's sandbox. What comes in may be hostile."""

import asyncio
import json
import os
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from schemas.outcomes import GateOutcome, RolloutOutcome
from schemas.parts import GateResult
from schemas.rules import commonest_failure, mean_std
from services.kernel.archive import ArchiveError, digest, unpack
from services.proposer.authoring.client import ARCHIVE_BYTES_MAX, FILES_MAX, VERBS, request_of

SOCKET_PATH_BYTES_MAX = 100
RECEIVE_TIMEOUT_S = 20.0
CHECKS_MAX = 16
"""Draft checks a session may ask for."""
CONNECTIONS_MAX = 4
"""At a time; one more is closed at once."""
DETAIL_CHARACTERS_MAX = 2000


@dataclass(frozen=True)
class Tried:
    """One attempt of the solver on a draft."""

    outcome: RolloutOutcome
    reward: float
    tests: Mapping[str, bool]
    transcript: str
    verifier: str
    """What the verifier printed."""


Check = Callable[[bytes], Awaitable[Sequence[GateResult]]]
Attempt = Callable[[bytes, int], Awaitable[Sequence[Tried]]]
"""A draft, and how many attempts of the solver on it."""
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
    attempt: Attempt | None = None
    tries_left: int = 0
    checks_left: int = CHECKS_MAX
    receive_timeout_s: float = RECEIVE_TIMEOUT_S
    submitted: bool = False
    failures: list[BaseException] = field(default_factory=list)
    """What the callbacks raised: trouble of the host, which the author is not blamed for."""
    _passed: set[str] = field(default_factory=set)
    """Digests of drafts that passed their check."""
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: one request, one answer."""
        try:
            try:
                async with asyncio.timeout(self.receive_timeout_s):
                    request, archive = await _receive(reader)
                said = await self._serve(request, archive)
            except _BadRequestError as error:
                said = [{"error": str(error)}]
            except TimeoutError:
                said = [{"error": f"no whole request within {self.receive_timeout_s:g} s"}]
            await _send(writer, said)
        finally:
            writer.close()

    async def _serve(self, request: str, archive: bytes) -> list[dict[str, object]]:
        async with self._one_at_a_time:
            if refused := self._refusal(request, archive):
                return [{"refused": refused}]
            self.checks_left -= request == "check"
            self.tries_left -= request.startswith("try")
            work = asyncio.ensure_future(self._call(request, archive))
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

    def _refusal(self, request: str, archive: bytes) -> str:
        """Why the author may not ask for this now; empty where it may."""
        if self.submitted:
            return "a draft was submitted already: the session is over"
        if request == "check" and self.checks_left <= 0:
            return "no draft check is left: submit, or end without"
        if request.startswith("try"):
            if self.tries_left <= 0:
                return "no try is left: submit, or end without"
            if digest(archive) not in self._passed:
                return "only a draft that has passed its check as it is can be tried: envwheel-draft check"
        return ""

    async def _call(self, request: str, archive: bytes) -> list[dict[str, object]]:
        if request == "submit":
            message = await self.submit(archive)
            self.submitted = True
            return [{"submitted": message}]
        if request.startswith("try") and self.attempt is not None:
            tried = await self.attempt(archive, int(request.removeprefix("try ")))
            return [*map(_attempt_line, range(len(tried)), tried), _summary(tried, self.tries_left)]
        results = await self.check(archive)
        if all(result.outcome is GateOutcome.passed for result in results):
            self._passed.add(digest(archive))
        return [_line(result) for result in results]


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
    """A request and an archive that is canonical and within its bounds."""
    try:
        request = request_of((await reader.readuntil(b"\n")).decode("ascii").split())
        if request is None:
            raise _BadRequestError(f"unknown request: only {', '.join(VERBS)} N are known")
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
    return request, archive


async def _send(writer: asyncio.StreamWriter, said: Sequence[dict[str, object]]) -> None:
    try:
        writer.write("".join(f"{json.dumps(line)}\n" for line in said).encode())
        async with asyncio.timeout(RECEIVE_TIMEOUT_S):
            await writer.drain()
    except (ConnectionError, TimeoutError):
        writer.transport.abort()


def _line(result: GateResult) -> dict[str, object]:
    return {"gate": result.gate, "outcome": result.outcome.value, "detail": result.detail[:DETAIL_CHARACTERS_MAX]}


def _attempt_line(number: int, tried: Tried) -> dict[str, object]:
    told: dict[str, object] = {"attempt": number, "outcome": tried.outcome.value, "reward": tried.reward}
    return told | {"tests": dict(tried.tests), "transcript": tried.transcript, "verifier": tried.verifier}


def _summary(tried: Sequence[Tried], tries_left: int) -> dict[str, object]:
    rewards = [each.reward for each in tried]
    mean, std = mean_std(rewards)
    failure = commonest_failure(dict(each.tests) for each in tried)
    return {"rewards": rewards, "mean": mean, "std": std, "commonest_failure": failure, "tries_left": tries_left}
