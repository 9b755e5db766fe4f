"""Frames between the host and PID 1: a length, then parts, each with its length; lengths are four bytes, big-endian."""

import os


def pack(*parts: bytes) -> bytes:
    body = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return len(body).to_bytes(4, "big") + body


def unpack(body: bytes) -> list[bytes]:
    """The parts of a frame without its length. Raises ValueError where lengths do not add up."""
    parts, at = [], 0
    while at < len(body):
        end = at + 4 + int.from_bytes(body[at : at + 4], "big")
        if end > len(body) or at + 4 > len(body):
            raise ValueError("a frame is malformed: its lengths do not add up")
        parts.append(body[at + 4 : end])
        at = end
    return parts


class Control:
    """PID 1's end of the conversation: a socket, or two pipes. Blocking, as the host sends whole frames. When the host
    closes it, the sandbox ends.
    """

    def __init__(self, fd: int, write_fd: int) -> None:
        self.fd, self._write_fd = fd, write_fd

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = os.read(self.fd, size - len(data))
            if not chunk:
                os._exit(0)
            data += chunk
        return bytes(data)

    def read_frame(self) -> list[bytes]:
        return unpack(self._read(int.from_bytes(self._read(4), "big")))

    def write_frame(self, *parts: bytes) -> None:
        data = memoryview(pack(*parts))
        while data:
            data = data[os.write(self._write_fd, data) :]
