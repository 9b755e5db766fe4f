"""The host's end of the socket to PID 1. What comes from there is bounded and checked: an image may bring a python3 of
its own.
"""

import asyncio
import socket

from services.kernel.sandbox.inside.wire import pack, unpack
from services.kernel.sandbox.protocol import SandboxError

CHUNK_BYTES = 1 << 20
FRAME_SLACK_BYTES = 1 << 16
"""Room for everything in a frame but its payload: error texts, paths, numbers."""


class Channel:
    """Frames over a non-blocking socket; one reader at a time."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock

    async def send(self, *parts: bytes) -> None:
        """Raises SandboxError when nobody is there."""
        try:
            await asyncio.get_running_loop().sock_sendall(self._sock, pack(*parts))
        except OSError as error:
            raise SandboxError(f"the sandbox has ended: {error}") from error

    async def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            data += await self._receive(min(size - len(data), CHUNK_BYTES))
        return bytes(data)

    async def _receive(self, size_max: int) -> bytes:
        """At least one byte."""
        try:
            chunk = await asyncio.get_running_loop().sock_recv(self._sock, size_max)
        except OSError as error:
            raise SandboxError(f"the sandbox has ended: {error}") from error
        if not chunk:
            raise SandboxError("the sandbox has ended")
        return chunk

    async def receive(self, payload_bytes_max: int = 0) -> list[bytes]:
        """One frame with at least one part."""
        size = int.from_bytes(await self._read(4), "big")
        if size > payload_bytes_max + FRAME_SLACK_BYTES:
            raise SandboxError(f"a frame of {size} bytes came from the sandbox, {payload_bytes_max} were asked for")
        try:
            parts = unpack(await self._read(size))
        except ValueError as error:
            raise SandboxError(str(error)) from error
        if not parts:
            raise SandboxError("an empty frame came from the sandbox")
        return parts

    def close(self) -> None:
        self._sock.close()
