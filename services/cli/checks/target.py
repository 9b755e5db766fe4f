"""What is to be checked: a task directory, a tar file of one, or every task below a directory."""

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from services.cli.outcome import CliError
from services.kernel.archive import BYTES_MAX, FILES_MAX, ArchiveError, FileEntry, pack, read_tree

PARTS = ("instruction.md", "environment", "solution", "tests")
"""A folder that holds two of these is a task, if a poor one: its task.toml is missing."""


TAR_BYTES_MAX = 2 * BYTES_MAX
"""Of a tar file, unpacked: headers, padding and times of BYTES_MAX content."""
_UNPACK = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\0", lzma.open))


@dataclass(frozen=True)
class Target:
    name: str
    """How a report calls it: the path below the directory that was given, or that directory's own name."""
    path: Path

    def archive(self) -> bytes:
        """The canonical archive of the task.

        Raises:
            ArchiveError: links, special files, odd names, too much: the task is at fault.
            TreeUnreadable, OSError: it cannot be read; nothing is said about it.
        """
        # Only the directory itself may be given by a link; below it none is followed.
        return pack(read_tar(self.path) if self.path.is_file() else read_tree(self.path.resolve()))


def find_targets(paths: Iterable[Path]) -> list[Target]:
    """Every task that the paths name or hold, in order, each once.

    Raises:
        CliError: a path that is not there, or holds no task.
    """
    found: dict[Path, Target] = {}
    for path in paths:
        if not path.exists():
            raise CliError(f"{path} is no task directory: No such file or directory")
        below = list(_below(path))
        if not below:
            raise CliError(f"{path} is no task directory and holds none: a task has a task.toml")
        for target in below:
            found.setdefault(target.path.resolve(), target)
    return list(found.values())


def _below(path: Path) -> Iterator[Target]:
    if path.is_file() or is_task(path):
        yield Target(path.resolve().name, path)
        return
    for folder, folders, _ in os.walk(path):
        folders.sort()
        here = Path(folder)
        for name in list(folders):
            if (here / name).is_symlink():
                folders.remove(name)
            elif is_task(here / name):
                folders.remove(name)
                yield Target((here / name).relative_to(path).as_posix(), here / name)


def is_task(folder: Path) -> bool:
    return (folder / "task.toml").is_file() or sum((folder / part).exists() for part in PARTS) >= 2


def read_tar(path: Path) -> dict[str, FileEntry]:
    """The regular files of a tar file, plain or compressed, by their path below the task's directory.

    Raises:
        ArchiveError: no tar file; links and special files; more than the bounds of an archive.
    """
    files: dict[str, FileEntry] = {}
    left = BYTES_MAX
    try:
        with _unpacked(path) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if member.isdir():
                    continue
                if not member.isreg():
                    raise ArchiveError(f"{name!r}: a link or special file; only regular files may be held")
                if name in files:
                    raise ArchiveError(f"{name!r}: twice in the archive")
                left -= member.size
                if member.size < 0 or left < 0 or len(files) == FILES_MAX:
                    raise ArchiveError(f"{name!r}: here the archive goes over its bound of files or bytes")
                content = tar.extractfile(member) or io.BytesIO()
                files[name] = FileEntry(content.read(), bool(member.mode & 0o100))
            while stream.read(1 << 20):
                pass  # what was packed tells only at its end whether it is whole
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, RecursionError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        # An OSError without a number comes from who unpacks, not from the disk.
        raise ArchiveError(f"{path} is no tar file that can be read: {error}") from error
    return _below_task_folder(files)


class _Bounded(io.BufferedReader):
    """Says no before it reads or unpacks more than TAR_BYTES_MAX: headers may ask for any number of bytes at once."""

    _left = TAR_BYTES_MAX

    def read(self, size: int | None = -1, /) -> bytes:
        size = TAR_BYTES_MAX if size is None or size < 0 else size
        self._left -= size
        if self._left < 0:
            raise ArchiveError(f"the archive has more than {TAR_BYTES_MAX} bytes")
        return super().read(size)


def _unpacked(path: Path) -> _Bounded:
    with path.open("rb") as file:
        head = file.read(6)
    for magic, unpack in _UNPACK:
        if head.startswith(magic):
            return _Bounded(unpack(path))
    return _Bounded(io.FileIO(path))


def _below_task_folder(files: dict[str, FileEntry]) -> dict[str, FileEntry]:
    """A tar of a directory names that directory in front of every file: it is left out."""
    tops = {PurePosixPath(name).parts[0] for name in files}
    if "task.toml" in files or len(tops) != 1 or any("/" not in name for name in files):
        return files
    return {name.partition("/")[2]: entry for name, entry in files.items()}
