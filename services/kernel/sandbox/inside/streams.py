"""What a command reads and prints: bytes in, fed without waiting; bytes out, of which head and tail are kept."""

import os

CHUNK_BYTES = 1 << 16
DRAIN_BYTES = 1 << 20


class Output:
    """The first and the last bytes of a stream, `bytes_max` together, and how many there were."""

    def __init__(self, bytes_max: int) -> None:
        self._head_max = (bytes_max + 1) // 2
        self._tail_max = bytes_max - self._head_max
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        self.total += len(chunk)
        room = self._head_max - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        if len(self._tail) > 2 * self._tail_max + CHUNK_BYTES:
            self._trim()

    def _trim(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_max)]

    def kept(self) -> bytes:
        self._trim()
        return bytes(self._head + self._tail)


def read_available(fd: int, output: Output | None) -> bool:
    """Read without waiting, at most DRAIN_BYTES; True at the end of the stream."""
    left = DRAIN_BYTES
    while left > 0:
        try:
            chunk = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            return True
        left -= len(chunk)
        if output is not None:
            output.add(chunk)
    return False


class Feed:
    """Bytes on their way into a pipe that a command reads at its own pace."""

    def __init__(self, data: bytes) -> None:
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.write_fd, False)
        self._left = memoryview(data)
        self._write()

    def _write(self) -> None:
        try:
            while self._left:
                self._left = self._left[os.write(self.write_fd, self._left[:CHUNK_BYTES]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            pass
        self.close()

    def write(self) -> bool:
        """Write what fits; True when there is no more to write or nobody to read it."""
        self._write()
        return self.write_fd < 0

    def close(self) -> None:
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1
