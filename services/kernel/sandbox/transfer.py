"""Reads host files for `put`: one file or a whole folder, links as links, nothing special, nothing outside the
source.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from services.kernel.sandbox.protocol import SandboxRefusedError

CHUNK_BYTES = 1 << 20
DEPTH_MAX = 100
Frame = tuple[bytes, ...]


def inside_path(path: str) -> bytes:
    """An absolute path without `..`, as bytes. Raises SandboxRefusedError."""
    if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise SandboxRefusedError(f"{path!r} is not an absolute path free of '..'")
    try:
        return os.fsencode(path)
    except UnicodeEncodeError as error:
        raise SandboxRefusedError(f"{path!r} is no file name") from error


def put_frames(source: Path, target: str) -> Iterator[Frame]:
    """Frames that recreate `source` at `target`; folders get their modes last, so that a closed one can still be
    filled.
    """
    path = inside_path(target)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(source, flags)
    except OSError as error:
        raise SandboxRefusedError(f"cannot read {source}: {error}") from error
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        yield from _file_frames(fd, path)
        return
    yield from _folder_frames(fd, path, flags)


def _folder_frames(fd: int, path: bytes, flags: int) -> Iterator[Frame]:
    try:
        if path.count(b"/") > DEPTH_MAX:
            raise SandboxRefusedError(f"more than {DEPTH_MAX} folders in one another: {path[:200]!r}")
        status = os.fstat(fd)
        if path.strip(b"/"):
            yield (b"put-folder", path)
        for name in sorted(map(os.fsencode, os.listdir(fd))):
            below = path.rstrip(b"/") + b"/" + name
            kind = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
            if stat.S_ISLNK(kind):
                yield (b"put-link", below, os.readlink(name, dir_fd=fd))
            elif stat.S_ISDIR(kind):
                yield from _folder_frames(os.open(name, flags, dir_fd=fd), below, flags)
            elif stat.S_ISREG(kind):
                yield from _file_frames(os.open(name, flags, dir_fd=fd), below)
            else:
                raise SandboxRefusedError(f"{below!r} is a special file and is not copied")
        if path.strip(b"/"):
            yield _mode_frame(status, path)
    except OSError as error:
        raise SandboxRefusedError(f"cannot read the files for {path!r}: {error}") from error
    finally:
        os.close(fd)


def _file_frames(fd: int, path: bytes) -> Iterator[Frame]:
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise SandboxRefusedError(f"the source of {path!r} is a special file and is not copied")
        yield (b"put-file", path)
        while chunk := os.read(fd, CHUNK_BYTES):
            yield (b"put-data", chunk)
        yield _mode_frame(status, path)
    finally:
        os.close(fd)


def _mode_frame(status: os.stat_result, path: bytes) -> Frame:
    return (b"put-mode", path, str(stat.S_IMODE(status.st_mode)).encode(), str(status.st_mtime_ns).encode())
