"""Content-addressed bytes in a folder: `<root>/sha256/ab/<64 hex digits>`. Durable before anybody can name them.

Many processes, also of several users in one group, may write at once: a file appears under its digest by one rename,
complete and synced, or not at all. All calls block on the disk; from a coroutine use `asyncio.to_thread`.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from hashlib import file_digest, sha256
from io import BufferedRandom, BufferedReader
from pathlib import Path

from services.kernel.errors import ArtifactCorrupt, ArtifactMissing, ArtifactRefused

_DIGEST = re.compile(r"[0-9a-f]{64}")
_COPY_BYTES = 2**20
_TOGETHER = 64
"""Files of `put_many` that are open at once."""
_Incoming = tuple[BufferedRandom, Path]


class ArtifactStore:
    """A store that `create` made. `file_mode` and `dir_mode` hold whatever the umask is."""

    def __init__(self, root: Path, *, file_mode: int = 0o644, dir_mode: int = 0o2775) -> None:
        self.root = root
        self._file_mode = file_mode
        self._dir_mode = dir_mode
        self._incoming = root / "incoming"

    def create(self) -> "ArtifactStore":
        """Makes the folders that are missing, durably; may be repeated by anybody."""
        shelves = self.root / "sha256"
        folders = [self.root, self._incoming, shelves, *(shelves / f"{shelf:02x}" for shelf in range(256))]
        for folder in folders:
            if not folder.is_dir():
                folder.mkdir(parents=folder is self.root, exist_ok=True)
                folder.chmod(self._dir_mode)
        for folder in (self.root, shelves):
            _sync_dir(folder)
        return self

    def path(self, digest: str) -> Path:
        """Where these bytes lie or would lie; nothing is checked but the digest's form."""
        if not _DIGEST.fullmatch(digest):
            raise ArtifactRefused(repr(digest), "not a sha256 digest of 64 hex digits")
        return self.root / "sha256" / digest[:2] / digest

    def put(self, data: bytes) -> str:
        """Stores bytes and returns their digest; on disk when it returns."""
        return self.put_many([data])[0]

    def put_many(self, items: Sequence[bytes]) -> list[str]:
        """As `put` for each; the disk is asked to sync once for all, which is faster."""
        starts = range(0, len(items), _TOGETHER)
        return [digest for start in starts for digest in self._put(items[start : start + _TOGETHER])]

    def put_file(self, source: Path) -> str:
        """Stores a file's content without holding it in memory. A symbolic link is refused."""
        with _open_file(source) as opened:
            new, temporary = self._incoming_file()
            try:
                shutil.copyfileobj(opened, new, _COPY_BYTES)
                new.seek(0)
                digest = file_digest(new, "sha256").hexdigest()
                if not self._has_all(digest, new.seek(0, os.SEEK_END)):
                    self._file_away({digest: (new, temporary)})
            finally:
                _discard([(new, temporary)])
        self._sync_shelves([digest])
        return digest

    def get(self, digest: str) -> bytes:
        """Raises: ArtifactMissing; ArtifactCorrupt where the bytes are not what the digest says."""
        with self._open(digest) as opened:
            data = opened.read()
        if sha256(data).hexdigest() != digest:
            raise ArtifactCorrupt(digest, f"{self.path(digest)} holds other bytes (sha256 {sha256(data).hexdigest()})")
        return data

    def open(self, digest: str) -> BufferedReader:
        """A reader of checked bytes, at their start; the caller closes it. Raises as `get`."""
        opened = self._open(digest)
        if (found := file_digest(opened, "sha256").hexdigest()) != digest:
            opened.close()
            raise ArtifactCorrupt(digest, f"{self.path(digest)} holds other bytes (sha256 {found})")
        opened.seek(0)
        return opened

    def has(self, digest: str) -> bool:
        """Is there a file of this name? Its bytes are checked by `get` and `open` only."""
        return self.path(digest).is_file()

    def __iter__(self) -> Iterator[str]:
        """All digests, sorted."""
        for shelf in sorted((self.root / "sha256").iterdir()):
            yield from sorted(entry.name for entry in shelf.iterdir())

    def _put(self, items: Sequence[bytes]) -> list[str]:
        digests = [sha256(data).hexdigest() for data in items]
        incoming: dict[str, _Incoming] = {}
        try:
            for digest, data in zip(digests, items, strict=True):
                if digest not in incoming and not self._has_all(digest, len(data)):
                    incoming[digest] = self._incoming_file()
                    incoming[digest][0].write(data)
            self._file_away(incoming)
        finally:
            _discard(incoming.values())
        # A file that another process has just renamed is synced by its name too, so that we may name it.
        self._sync_shelves(digests)
        return digests

    def _open(self, digest: str) -> BufferedReader:
        try:
            return _open_file(self.path(digest))
        except FileNotFoundError:
            raise ArtifactMissing(digest, f"no such file in the store {self.root}") from None

    def _has_all(self, digest: str, size_bytes: int) -> bool:
        try:
            found_bytes = self.path(digest).stat().st_size
        except FileNotFoundError:
            return False
        if found_bytes != size_bytes:
            raise ArtifactCorrupt(digest, f"{self.path(digest)} has {found_bytes} bytes instead of {size_bytes}")
        return True

    def _incoming_file(self) -> _Incoming:
        try:
            handle, name = tempfile.mkstemp(dir=self._incoming)
        except FileNotFoundError:
            raise ArtifactRefused("(new)", f"{self.root} is not an artifact store: make it with create()") from None
        return os.fdopen(handle, "w+b"), Path(name)

    def _file_away(self, incoming: dict[str, _Incoming]) -> None:
        for opened, _ in incoming.values():
            opened.flush()
            os.fchmod(opened.fileno(), self._file_mode)
            os.fsync(opened.fileno())
        for digest, (_, temporary) in incoming.items():
            temporary.rename(self.path(digest))

    def _sync_shelves(self, digests: Iterable[str]) -> None:
        for shelf in {self.path(digest).parent for digest in digests}:
            _sync_dir(shelf)


def _open_file(path: Path) -> BufferedReader:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def _sync_dir(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _discard(incoming: Iterable[_Incoming]) -> None:
    for opened, temporary in incoming:
        opened.close()
        temporary.unlink(missing_ok=True)
