"""What a sandbox's tree has become since its start, as frames that make another start of the same image look like it.

For backends whose writable layer the host cannot see. Changed is what has a younger inode change time than the start,
which nobody inside can set back, and what the image has not; no process may run meanwhile. Owners, modes, times of
modification, holes, hard links, FIFOs and sockets are kept; extended attributes are not, nor what lies more than
DEPTH_MAX folders deep.
"""

import os
from _collections_abc import Iterator  # the public name loads a large module

from services.kernel.sandbox.inside.files import S_IFDIR, S_IFMT, S_IFREG, RefusedError, describe
from services.kernel.sandbox.inside.links import leads_astray
from services.kernel.sandbox.inside.restore import Restorer, prepare_folder, prepare_hosts

S_IFLNK, S_IFIFO, S_IFSOCK = 0o120000, 0o010000, 0o140000
DEPTH_MAX = 200
DATA_BYTES = 1 << 20
NO_MORE_DATA = 6
"""ENXIO"""
LEFT_OUT = (b"/proc", b"/sys", b"/dev", b"/etc/hostname")
"""The container engine's own."""
MARK = b"/.envwheel-start"
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
Frame = list[bytes]


class Scope:
    """Patterns of paths that are left out, such as `usr` or `lib*`; where there are any, links that lead astray too."""

    def __init__(self, patterns: bytes) -> None:
        self._patterns = [pattern.split(b"/") for pattern in patterns.split(b"\0") if pattern]

    def excludes(self, path: bytes, *, folder: bool) -> bool:
        """True for what a pattern names, and for a link or file where the folders of a pattern should be."""
        parts = path.strip(b"/").split(b"/")
        for pattern in self._patterns:
            whole = len(parts) == len(pattern)
            if (whole or (len(parts) < len(pattern) and not folder)) and all(map(matches, parts, pattern)):
                return True
        return False

    def excludes_link(self, path: bytes) -> bool:
        return bool(self._patterns) and leads_astray(path, read_link)


def read_link(path: bytes) -> bytes | None:
    try:
        return os.readlink(path)  # noqa: PTH115
    except OSError:
        return None


def matches(part: bytes, pattern: bytes) -> bool:
    return part.startswith(pattern[:-1]) if pattern.endswith(b"*") else part == pattern


class Entry:
    """One entry of the tree, while its folder is open."""

    def __init__(self, folder_fd: int, prefix: bytes, name: bytes) -> None:
        self.folder_fd, self.name, self.path = folder_fd, name, prefix + b"/" + name
        self.status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
        self.kind = self.status.st_mode & S_IFMT

    @property
    def shown(self) -> bytes:
        return self.path + b"/" if self.kind == S_IFDIR else self.path

    def attributes(self) -> Frame:
        status = self.status
        numbers = (status.st_mode & 0o7777, status.st_mtime_ns, status.st_uid, status.st_gid)
        return [str(number).encode() for number in numbers]


class Changes:
    """Answers the frames of these kinds."""

    KINDS = (b"prepare", b"list", b"pack", b"restore")

    def __init__(self) -> None:
        self._start_ns = 0
        self._mounts: list[bytes] = []
        self._restorer = Restorer([], {})

    def handle(self, kind: bytes, parts: list[bytes]) -> Iterator[Frame]:
        try:
            if kind == b"restore":
                yield from self._restorer.take(parts)
                return
            if kind == b"prepare":
                self._prepare(*parts)
                yield [b"ok"]
            elif kind == b"list":
                yield [b"ok", b"\0".join(entry.shown for entry, after in self._walk(Scope(parts[0])) if not after)]
            else:
                yield from self._pack(Scope(parts[0]), parts[1].split(b"\0"))
                yield [b"ok"]
        except (RefusedError, OSError) as error:
            yield [b"refused" if isinstance(error, RefusedError) else b"failed", describe(error)]

    def _prepare(self, hosts: bytes, mounts: bytes, folders: bytes) -> None:
        """Note the time of the start, then make what every sandbox has. Folders are modes (0: as it is) and paths."""
        os.close(os.open(MARK, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        self._start_ns = os.stat(MARK).st_ctime_ns  # noqa: PTH116
        os.unlink(MARK)  # noqa: PTH108
        self._mounts = [mount for mount in mounts.split(b"\0") if mount]
        modes = {}
        for entry in folders.split(b"\0"):
            mode, path = entry.split(b" ", 1)
            modes[path] = int(mode)
            prepare_folder(path, int(mode))
        prepare_hosts(hosts)
        self._restorer = Restorer(self._mounts, modes)

    def _walk(self, scope: Scope) -> Iterator[tuple[Entry, bool]]:
        """Every entry, a folder before its content, and again (True) after it."""
        stack: list[tuple[Entry | None, Iterator[Entry]]] = [(None, scan(os.open(b"/", FOLDER_FLAGS), b""))]
        while stack:
            folder, entries = stack[-1]
            entry = next(entries, None)
            if entry is None:
                stack.pop()
                if folder is not None:
                    yield folder, True
                continue
            if entry.path in LEFT_OUT or entry.path in self._mounts:
                continue
            if scope.excludes(entry.path, folder=entry.kind == S_IFDIR):
                continue
            yield entry, False
            if entry.kind == S_IFDIR and len(stack) <= DEPTH_MAX:
                fd = os.open(entry.name, FOLDER_FLAGS, dir_fd=entry.folder_fd)
                stack.append((entry, scan(fd, entry.path)))

    def _pack(self, scope: Scope, listed: list[bytes]) -> Iterator[Frame]:
        """`listed` is what another start of the image answers to `list`."""
        for path in self._removed(scope, listed):
            yield [b"restore", b"remove", path]
        known = set(listed)
        packed: dict[tuple[int, int], bytes] = {}
        for entry, after in self._walk(scope):
            if entry.status.st_ctime_ns < self._start_ns and entry.shown in known:
                continue
            inode = entry.status.st_dev, entry.status.st_ino
            if entry.kind == S_IFDIR:
                operation = [b"folder-mode", entry.path, *entry.attributes()] if after else [b"folder", entry.path]
                yield [b"restore", *operation]
            elif entry.kind == S_IFLNK and scope.excludes_link(entry.path):
                continue
            elif inode in packed:
                yield [b"restore", b"same", entry.path, packed[inode]]
            else:
                if entry.status.st_nlink > 1:
                    packed[inode] = entry.path
                yield from ([b"restore", *operation] for operation in operations(entry))

    def _removed(self, scope: Scope, listed: list[bytes]) -> Iterator[bytes]:
        """What is listed and is gone, or is no folder any more, or has become one; not what lay below it."""
        above = b"\0"
        for shown in listed:
            path, was_folder = shown.rstrip(b"/"), shown.endswith(b"/")
            if path.startswith((above + b"/", *(mount + b"/" for mount in self._mounts))) or path in self._mounts:
                continue
            try:
                is_folder = os.lstat(path).st_mode & S_IFMT == S_IFDIR
                if is_folder == was_folder:
                    continue
            except OSError:
                is_folder = False
            above = path
            if not scope.excludes(path, folder=is_folder):
                yield path


def scan(fd: int, prefix: bytes) -> Iterator[Entry]:
    try:
        for name in sorted(map(os.fsencode, os.listdir(fd))):
            yield Entry(fd, prefix, name)
    finally:
        os.close(fd)


def operations(entry: Entry) -> Iterator[Frame]:
    """How to make an entry that is no folder. Devices cannot be made in a sandbox."""
    if entry.kind == S_IFREG:
        fd = os.open(entry.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=entry.folder_fd)
        try:
            yield [b"file", entry.path]
            yield from data_operations(fd, entry.status.st_size)
            yield [b"file-mode", str(entry.status.st_size).encode(), *entry.attributes()]
        finally:
            os.close(fd)
    elif entry.kind == S_IFLNK:
        yield [b"link", entry.path, os.readlink(entry.name, dir_fd=entry.folder_fd)]
    elif entry.kind in (S_IFIFO, S_IFSOCK):
        yield [b"special", entry.path, str(entry.kind).encode(), *entry.attributes()]


def data_operations(fd: int, size: int) -> Iterator[Frame]:
    at = 0
    while at < size:
        end = size
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
            end = os.lseek(fd, at, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == NO_MORE_DATA:
                return
        while at < end:
            data = os.pread(fd, min(DATA_BYTES, end - at), at)
            if not data:
                return
            yield [b"data", str(at).encode(), data]
            at += len(data)
