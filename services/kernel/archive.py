"""Canonical archives: one set of files has exactly one byte string, so that its sha256 names it.

The format is a plain tar (ustar; a pax `path` record where a name is long or not ASCII) of regular files only: names
sorted by their UTF-8 bytes, times, owners and groups 0, modes 0644 or 0755, directories implied. Reading takes nothing
else, so `pack(unpack(data)) == data` for every archive that is accepted.
"""

import errno
import hashlib
import os
import stat
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

NAME_BYTES_MAX = 1024
PART_BYTES_MAX = 255
FILE_BYTES_MAX = 8**11 - 1
FILES_MAX = 10_000
BYTES_MAX = 256 * 2**20

_BLOCK = 512
_END = bytes(2 * _BLOCK)
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"5": "a directory entry",
    b"6": "a FIFO",
    b"7": "a contiguous file",
    b"S": "a sparse file",
    b"L": "a GNU long name",
    b"K": "a GNU long link",
    b"g": "a global pax header",
}


class ArchiveError(Exception):
    """The bytes, names or tree are not what a canonical archive can hold; the message says which member and why."""


class TreeUnreadable(ArchiveError):
    """A tree could not be read: no right to, a disk error, a file that changes. It says nothing about what it holds."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One regular file: its bytes, and whether it may be run (mode 0755, else 0644)."""

    content: bytes
    executable: bool = False


def digest(data: bytes) -> str:
    """sha256 in hex."""
    return hashlib.sha256(data).hexdigest()


def check_name(name: str) -> None:
    """Raises ArchiveError unless `name` is relative, in UTF-8 NFC, without empty, `.` or `..` parts, all visible."""
    try:
        encoded = name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ArchiveError(f"{name!r}: the name is not UTF-8") from error
    if len(encoded) > NAME_BYTES_MAX:
        raise ArchiveError(f"{name[:60]!r}…: the name is longer than {NAME_BYTES_MAX} bytes")
    if name.startswith("/"):
        raise ArchiveError(f"{name!r}: the name is absolute")
    if any(unicodedata.category(letter) in _HIDDEN_CATEGORIES for letter in name):
        raise ArchiveError(f"{name!r}: the name holds control or invisible characters")
    if not unicodedata.is_normalized("NFC", name):
        raise ArchiveError(f"{name!r}: the name is not in Unicode form NFC")
    for part in name.split("/"):
        if part in ("", ".", ".."):
            raise ArchiveError(f"{name!r}: the name has an empty, '.' or '..' part")
        if len(part.encode()) > PART_BYTES_MAX:
            raise ArchiveError(f"{name[:60]!r}…: a part of the name is longer than {PART_BYTES_MAX} bytes")


def check_names(names: Mapping[str, object]) -> None:
    """Every name by itself, and no file where another name needs a directory."""
    for name in names:
        check_name(name)
        while "/" in name:
            name = name.rpartition("/")[0]
            if name in names:
                raise ArchiveError(f"{name!r} is a file and a directory at once")


def pack(files: Mapping[str, FileEntry]) -> bytes:
    """The canonical archive of `files`.

    Raises:
        ArchiveError: a name that cannot be held, or a file of 8 GiB or more.
    """
    check_names(files)
    blocks: list[bytes] = []
    for name in sorted(files, key=lambda each: each.encode()):
        entry = files[name]
        if len(entry.content) > FILE_BYTES_MAX:
            raise ArchiveError(f"{name!r}: larger than {FILE_BYTES_MAX} bytes")
        blocks += _headers(name, len(entry.content), entry.executable)
        blocks += [entry.content, bytes(-len(entry.content) % _BLOCK)]
    blocks.append(_END)
    return b"".join(blocks)


def unpack(data: bytes, *, files_max: int = FILES_MAX, bytes_max: int = BYTES_MAX) -> dict[str, FileEntry]:
    """The files of a canonical archive, in order; nothing is written anywhere.

    Raises:
        ArchiveError: anything that `pack` would not have written; more than `files_max` files or `bytes_max` bytes.
    """
    if len(data) > bytes_max:
        raise ArchiveError(f"the archive has {len(data)} bytes, more than {bytes_max}")
    files: dict[str, FileEntry] = {}
    offset, last = 0, b""
    while data[offset : offset + _BLOCK] != _END[:_BLOCK]:
        if len(files) == files_max:
            raise ArchiveError(f"more than {files_max} files")
        name, size, executable, offset = _member(data, offset)
        if name in files:
            raise ArchiveError(f"{name!r}: twice in the archive")
        if name.encode() < last:
            raise ArchiveError(f"{name!r}: the names are not sorted")
        last = name.encode()
        files[name] = FileEntry(data[offset : offset + size], executable)
        padding = data[offset + size : offset + size + -size % _BLOCK]
        if any(padding):
            raise ArchiveError(f"{name!r}: bytes hidden in the padding")
        offset += size + len(padding)
    if data[offset:] != _END:
        raise ArchiveError("the end is not exactly two zero blocks: trailing or missing data")
    check_names(files)
    return files


def read_tree(root: Path, *, files_max: int = FILES_MAX, bytes_max: int = BYTES_MAX) -> dict[str, FileEntry]:
    """The regular files below the directory `root`, sorted by name. Follows no link, leaves out empty directories.

    Raises:
        ArchiveError: a link, a special file, an odd name, too many files or bytes.
        TreeUnreadable: something below cannot be read, or changes meanwhile.
        OSError: `root` is not a readable directory.
    """
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        # Twice the files: the budget counts their directories as well.
        files = dict(_walk(descriptor, "", _Budget(2 * files_max, bytes_max)))
    finally:
        os.close(descriptor)
    if len(files) > files_max:
        raise ArchiveError(f"more than {files_max} files below {root}")
    return dict(sorted(files.items(), key=lambda file: file[0].encode()))


def write_tree(files: Mapping[str, FileEntry], root: Path, *, mtime_s: int = 0) -> None:
    """Write `files` below `root`, which is made or must be empty; every file and directory gets the time `mtime_s`.

    Raises:
        ArchiveError: a name that an archive could not hold, or a `root` that already holds something.
    """
    check_names(files)
    root.mkdir(parents=True, exist_ok=True)
    if any(root.iterdir()):
        raise ArchiveError(f"{root} is not empty")
    directories = {root}
    for name, entry in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        directories.update(parent for parent in path.parents if parent.is_relative_to(root))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(entry.content)
            os.fchmod(descriptor, 0o755 if entry.executable else 0o644)
        os.utime(path, (mtime_s, mtime_s))
    for directory in sorted(directories, reverse=True):
        directory.chmod(0o755)
        os.utime(directory, (mtime_s, mtime_s))


def _headers(name: str, size: int, executable: bool) -> list[bytes]:
    encoded = name.encode()
    if len(encoded) <= 100 and encoded.isascii():
        return [_header(encoded, size, b"0", executable)]
    record = _pax_record(encoded)
    return [
        _header(b"pax", len(record), b"x", False),
        record,
        bytes(-len(record) % _BLOCK),
        _header(b"file", size, b"0", executable),
    ]


def _pax_record(encoded: bytes) -> bytes:
    """One pax record `LENGTH path=NAME\\n`, whose length counts itself."""
    length = len(encoded) + len(" path=\n")
    total = length + len(str(length))
    total = length + len(str(total))
    return b"%d path=%s\n" % (total, encoded)


def _header(name: bytes, size: int, kind: bytes, executable: bool) -> bytes:
    mode = b"0000755" if executable else b"0000644"
    owner_and_group = b"0000000\0" * 2
    block = name.ljust(100, b"\0") + mode + b"\0" + owner_and_group + b"%011o\0" % size + b"00000000000\0"
    block += b" " * 8 + kind + bytes(100) + b"ustar\x0000" + bytes(64) + b"0000000\0" * 2
    block = block.ljust(_BLOCK, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _member(data: bytes, offset: int) -> tuple[str, int, bool, int]:
    """Name, size, executable and content offset of the member whose header starts at `offset`."""
    block = data[offset : offset + _BLOCK]
    if len(block) < _BLOCK:
        raise ArchiveError("the archive ends in the middle of a header")
    encoded = block[:100].rstrip(b"\0")
    start = offset + _BLOCK
    if block[156:157] == b"x":
        size = _size(block, encoded)
        record = data[start : start + size]
        encoded = record.partition(b" path=")[2].removesuffix(b"\n")
        if record != _pax_record(encoded) or len(encoded) > NAME_BYTES_MAX:
            raise ArchiveError("a pax header that is not one plain path record")
        start += size + -size % _BLOCK
        block = data[start : start + _BLOCK]
        start += _BLOCK
    kind = block[156:157]
    if kind != b"0":
        found = _KINDS.get(kind, f"an entry of unknown kind {kind!r}")
        raise ArchiveError(f"{encoded!r}: {found}; only regular files may be held")
    try:
        name = encoded.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArchiveError(f"{encoded!r}: the name is not UTF-8") from error
    check_name(name)
    size, executable = _size(block, encoded), block[100:107] == b"0000755"
    if b"".join(_headers(name, size, executable)) != data[offset:start]:
        raise ArchiveError(f"{name!r}: its header is not canonical (mode, owner, time, checksum or format)")
    if start + size > len(data):
        raise ArchiveError(f"{name!r}: says {size} bytes, the archive ends before them")
    return name, size, executable, start


def _size(block: bytes, encoded: bytes) -> int:
    digits = block[124:135]
    if len(digits) != 11 or any(digit not in b"01234567" for digit in digits):
        raise ArchiveError(f"{encoded!r}: the size is not 11 octal digits")
    return int(digits, 8)


class _Budget:
    """What a walk may still take; counts directories too, so that a forest of empty ones ends."""

    def __init__(self, entries: int, content_bytes: int) -> None:
        self.entries, self.content_bytes = entries, content_bytes

    def take(self, name: str, entries: int, content_bytes: int) -> None:
        self.entries -= entries
        self.content_bytes -= content_bytes
        if self.entries < 0 or self.content_bytes < 0:
            raise ArchiveError(f"{name!r}: here the tree goes over its bound of files or bytes")


def _walk(descriptor: int, prefix: str, budget: _Budget) -> Iterator[tuple[str, FileEntry]]:
    names = []
    with os.scandir(descriptor) as scan:
        for found in scan:
            budget.take(prefix + found.name, 1, 0)
            names.append(found.name)
    for part in sorted(names):
        name = prefix + part
        check_name(name)
        try:
            # O_NONBLOCK: opening a FIFO must not wait for a writer.
            child = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=descriptor)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO):
                raise TreeUnreadable(f"{name!r}: unreadable ({error.strerror})") from error
            raise ArchiveError(f"{name!r}: a link or special file ({error.strerror})") from error
        try:
            status = os.fstat(child)
            if stat.S_ISDIR(status.st_mode):
                yield from _walk(child, name + "/", budget)
            elif stat.S_ISREG(status.st_mode):
                budget.take(name, 0, status.st_size)
                yield name, _read(child, name, status)
            else:
                raise ArchiveError(f"{name!r}: a FIFO, socket or device")
        finally:
            os.close(child)


def _read(descriptor: int, name: str, status: os.stat_result) -> FileEntry:
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        content = file.read(status.st_size + 1)
    if len(content) != status.st_size:
        raise TreeUnreadable(f"{name!r}: changed while it was read")
    return FileEntry(content, bool(status.st_mode & 0o100))
