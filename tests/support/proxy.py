"""A TCP proxy between a client and its server that loses answers on demand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class LossyProxy:
    """Forwards bytes. While `lose_answers` is set, whatever the server says next is dropped and the connection cut."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._lines: set[asyncio.Task[None]] = set()
        self.lose_answers = False
        self.cuts = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        lines = [
            asyncio.create_task(self._forward(reader, to_server[1], from_server=False)),
            asyncio.create_task(self._forward(to_server[0], writer, from_server=True)),
        ]
        self._lines.update(lines)
        await asyncio.wait(lines, return_when=asyncio.FIRST_COMPLETED)
        for line in lines:
            line.cancel()
            self._lines.discard(line)
        writer.close()
        to_server[1].close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, from_server: bool) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(2**16):
                if from_server and self.lose_answers:
                    self.lose_answers = False
                    self.cuts += 1
                    return
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def lossy_proxy(server_port: int) -> AsyncIterator[LossyProxy]:
    proxy = LossyProxy(server_port)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listener.close()
