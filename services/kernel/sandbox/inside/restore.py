"""Makes the tree of a fresh start look like another's, from the operations that `changes` packs."""

import os
from _collections_abc import Iterator  # the public name loads a large module

from services.kernel.sandbox.inside.files import (
    S_IFDIR,
    S_IFMT,
    RefusedError,
    describe,
    make_folder,
    open_parent,
    remove_old,
)

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
HOSTS = b"/etc/hosts"


def prepare_folder(path: bytes, mode: int) -> None:
    """Make a folder where none is, and give it this mode unless that is 0."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        status = None
    if status is None or status.st_mode & S_IFMT != S_IFDIR:
        parent, name = open_parent(path, make=True)
        try:
            remove_old(parent, name)
            make_folder(parent, name)
        finally:
            os.close(parent)
    if mode and (status is None or status.st_mode & 0o7777 != mode):
        os.chmod(path, mode)  # noqa: PTH101


def prepare_hosts(text: bytes) -> None:
    """Images are made by engines that mount /etc/hosts, and have none or an empty one."""
    try:
        if os.lstat(HOSTS).st_size:
            return
    except OSError:
        pass
    parent, name = open_parent(HOSTS, make=True)
    try:
        remove_old(parent, name)
        fd = os.open(name, FILE_FLAGS, 0o644, dir_fd=parent)
    finally:
        os.close(parent)
    os.write(fd, text)
    os.close(fd)


class Restorer:
    """Mounts and what is below them stay as they are. So do the folders that every sandbox has, and all above both:
    no link or file takes their place.
    """

    def __init__(self, mounts: list[bytes], modes: dict[bytes, int]) -> None:
        self._mounts, self._modes = mounts, modes
        self._fd = -1
        self._fault: list[bytes] = []

    def take(self, parts: list[bytes]) -> Iterator[list[bytes]]:
        """Operations come without answers until `end`; the first fault counts."""
        operation, *arguments = parts
        if operation == b"end":
            fault, self._fault = self._fault, []
            yield fault or [b"ok"]
        elif not self._fault:
            try:
                self._do(operation, arguments)
            except (RefusedError, OSError) as error:
                self._fault = [b"refused" if isinstance(error, RefusedError) else b"failed", describe(error)]

    def _keeps(self, operation: bytes, path: bytes) -> bool:
        if any(path == mount or path.startswith(mount + b"/") for mount in self._mounts):
            return True
        if operation == b"folder-mode":
            return bool(self._modes.get(path))
        return operation != b"folder" and any(
            place == path or place.startswith(path + b"/") for place in (*self._mounts, *self._modes)
        )

    def _do(self, operation: bytes, arguments: list[bytes]) -> None:
        if operation == b"data":
            if self._fd >= 0:
                write_at(self._fd, int(arguments[0]), arguments[1])
        elif operation == b"file-mode":
            if self._fd >= 0:
                os.ftruncate(self._fd, int(arguments[0]))
                dress(self._fd, arguments[1:])
                self._fd = -1
        elif not self._keeps(operation, arguments[0]):
            parent, name = open_parent(arguments[0], make=True)
            try:
                self._make(operation, parent, name, arguments[1:])
            finally:
                os.close(parent)

    def _make(self, operation: bytes, parent: int, name: bytes, rest: list[bytes]) -> None:
        if operation == b"remove":
            remove(parent, name)
        elif operation == b"folder":
            make_folder(parent, name)
        elif operation == b"folder-mode":
            dress(os.open(name, FOLDER_FLAGS, dir_fd=parent), rest)
        else:
            remove_old(parent, name)
            if operation == b"file":
                self._fd = os.open(name, FILE_FLAGS, 0o600, dir_fd=parent)
            elif operation == b"link":
                os.symlink(rest[0], name, dir_fd=parent)
            elif operation == b"special":
                kind, mode, mtime_ns, uid, gid = map(int, rest)
                os.mknod(name, kind | 0o600, dir_fd=parent)
                os.chown(name, uid, gid, dir_fd=parent, follow_symlinks=False)
                os.chmod(name, mode, dir_fd=parent)
                os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=parent, follow_symlinks=False)
            elif operation == b"same":
                folder, other = open_parent(rest[0], make=False)
                try:
                    os.link(other, name, src_dir_fd=folder, dst_dir_fd=parent, follow_symlinks=False)
                finally:
                    os.close(folder)


def dress(fd: int, attributes: list[bytes]) -> None:
    """Owner first, as a change of owner takes set-uid bits away. Closes the descriptor."""
    mode, mtime_ns, uid, gid = map(int, attributes)
    try:
        os.fchown(fd, uid, gid)
        os.fchmod(fd, mode)
        os.utime(fd, ns=(mtime_ns, mtime_ns))
    finally:
        os.close(fd)


def write_at(fd: int, at: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, at)
        view, at = view[written:], at + written


def remove(parent: int, name: bytes) -> None:
    """A whole tree of the image; what is not there is no fault."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        fd = os.open(name, FOLDER_FLAGS, dir_fd=parent)
        try:
            for entry in map(os.fsencode, os.listdir(fd)):  # noqa: PTH208
                remove(fd, entry)
        finally:
            os.close(fd)
        os.rmdir(name, dir_fd=parent)
