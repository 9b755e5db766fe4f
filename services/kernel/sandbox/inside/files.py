"""Files in and out of a sandbox, by the one process that sees its tree as it is. No link is followed on any path."""

import os

CHUNK_BYTES = 1 << 16
DEPTH_MAX = 100
S_IFMT, S_IFDIR, S_IFREG = 0o170000, 0o040000, 0o100000


class RefusedError(Exception):
    """The request is at fault; the text goes to the host."""


def open_parent(path: bytes, *, make: bool) -> tuple[int, bytes]:
    """Descriptor of the folder of an absolute path, and the last name."""
    names = [name for name in path.split(b"/") if name]
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
    fd = os.open(b"/", flags)
    for name in names[:-1]:
        try:
            if make:
                make_folder(fd, name)
            below = os.open(name, flags, dir_fd=fd)
        except NotADirectoryError:
            raise RefusedError(f"{name!r} on the way to {path!r} is a link or not a folder") from None
        finally:
            os.close(fd)
        fd = below
    return fd, names[-1] if names else b"."


def make_folder(parent: int, name: bytes) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        if os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode & S_IFMT != S_IFDIR:
            raise NotADirectoryError(f"{name!r} is there and is a link or not a folder") from None


def remove_old(parent: int, name: bytes) -> None:
    """A file or link in the way is replaced, never written through."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        raise RefusedError(f"{name!r} is there and is a folder") from None


def get(path: bytes, bytes_max: int) -> bytes:
    parent, name = open_parent(path, make=False)
    try:
        # Looked at before it is opened: opening a device or a pipe can have effects.
        if os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode & S_IFMT != S_IFREG:
            raise RefusedError(f"{path!r} is a link, a folder or a special file")
        return read_plain(parent, name, path, bytes_max)[1]
    finally:
        os.close(parent)


def read_plain(parent: int, name: bytes, path: bytes, bytes_max: int) -> tuple[int, bytes]:
    """Mode and bytes of what was a regular file a moment ago."""
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=parent)
    try:
        status = os.fstat(fd)
        if status.st_mode & S_IFMT != S_IFREG or status.st_size > bytes_max:
            raise RefusedError(f"{path!r} has {status.st_size} bytes, {bytes_max} are allowed")
        data = bytearray()
        while chunk := os.read(fd, CHUNK_BYTES):
            data += chunk
            if len(data) > bytes_max:
                raise RefusedError(f"{path!r} has more than the allowed {bytes_max} bytes")
        return status.st_mode, bytes(data)
    finally:
        os.close(fd)


class FileTree:
    """The regular files below a folder: name, mode, content of each, in one row."""

    def __init__(self, files_max: int, bytes_max: int) -> None:
        self._files_left, self._bytes_left = files_max, bytes_max
        self.parts: list[bytes] = []

    def read(self, path: bytes) -> None:
        parent, name = open_parent(path, make=False)
        try:
            fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        finally:
            os.close(parent)
        self._folder(fd, b"", 0)

    def _folder(self, fd: int, prefix: bytes, depth: int) -> None:
        try:
            if depth > DEPTH_MAX:
                raise RefusedError(f"more than {DEPTH_MAX} folders in one another")
            for name in sorted(map(os.fsencode, os.listdir(fd))):
                kind = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode & S_IFMT
                if kind == S_IFDIR:
                    below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                    self._folder(below, prefix + name + b"/", depth + 1)
                elif kind == S_IFREG:
                    self._file(fd, name, prefix + name)
        finally:
            os.close(fd)

    def _file(self, folder: int, name: bytes, path: bytes) -> None:
        if self._files_left < 1:
            raise RefusedError("more files than allowed")
        mode, data = read_plain(folder, name, path, self._bytes_left - len(path))
        self._files_left -= 1
        self._bytes_left -= len(path) + len(data)
        self.parts += [path, str(mode).encode(), data]


class Files:
    """Answers file frames. Those of one put come without answers until `put-end`; its first fault counts."""

    def __init__(self) -> None:
        self._fault: list[bytes] = []
        self._open_fd = -1

    def handle(self, kind: bytes, parts: list[bytes]) -> list[bytes]:
        """The parts of the answer; none where the host waits for none."""
        try:
            if kind == b"get":
                return [b"ok", get(parts[0], int(parts[1]))]
            if kind == b"get-tree":
                tree = FileTree(int(parts[1]), int(parts[2]))
                tree.read(parts[0])
                return [b"ok", *tree.parts]
            if kind != b"put-end" and not self._fault:
                self._put(kind, parts)
        except FileNotFoundError as error:
            # While files are put in, a folder may be moved away under them: that is no missing file.
            self._fault = [b"missing" if kind.startswith(b"get") else b"refused", describe(error)]
        except (RefusedError, OSError) as error:
            self._fault = [b"refused", describe(error)]
        if kind not in (b"get", b"get-tree", b"put-end"):
            return []
        self._close()
        fault, self._fault = self._fault, []
        return fault or [b"ok"]

    def _put(self, kind: bytes, parts: list[bytes]) -> None:
        if kind == b"put-data":
            view = memoryview(parts[0])
            while view:
                view = view[os.write(self._open_fd, view) :]
            return
        parent, name = open_parent(parts[0], make=True)
        try:
            if kind == b"put-folder":
                make_folder(parent, name)
            elif kind == b"put-link":
                remove_old(parent, name)
                os.symlink(parts[1], name, dir_fd=parent)
            elif kind == b"put-file":
                remove_old(parent, name)
                self._close()
                self._open_fd = os.open(
                    name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=parent
                )
            elif kind == b"put-mode":
                if self._open_fd < 0:
                    self._open_fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
                os.fchmod(self._open_fd, int(parts[1]))
                os.utime(self._open_fd, ns=(int(parts[2]), int(parts[2])))
                self._close()
        finally:
            os.close(parent)

    def _close(self) -> None:
        if self._open_fd >= 0:
            os.close(self._open_fd)
            self._open_fd = -1


def describe(error: Exception) -> bytes:
    return str(error).encode("utf-8", "backslashreplace")
