"""A run as files: `export.json`, `records.ndjson` and the artifacts, in a folder or one uncompressed tar.

The same log and artifacts give the same bytes. A reader takes members by their names alone and extracts nothing, so a
hostile archive can at most hold records and artifacts that the level `log` then finds wrong.
"""

import io
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import msgspec

from services.kernel.errors import ArtifactCorrupt, ArtifactMissing, KernelError
from services.kernel.log import Stored
from services.observer.views.lines import LineError, decode_lines, encode_lines
from services.observer.views.named import artifacts_of
from services.observer.views.source import ArtifactReader, Source

FORMAT = "envwheel.export.1"
HEAD = "export.json"
RECORDS = "records.ndjson"
_DIGEST = re.compile(r"[0-9a-f]{64}")
Write = Callable[[str, bytes], None]


class ExportError(KernelError):
    """Not an export, or the place for a new one is taken."""

    boundary = "export"


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    run: str
    records: int
    last_seq: int


def write_export(source: Source, target: Path, *, artifacts: bool = True) -> Head:
    """Writes to a folder, or to one file if the name ends in `.tar`. Without `artifacts` they stay where they are.

    Raises: ExportError where something is there already; ArtifactMissing, ArtifactCorrupt, Unreadable.
    """
    if target.exists():
        raise ExportError(f"{target} is there already: remove it or choose another name")
    head = Head(format=FORMAT, run=source.run, records=len(source.records), last_seq=source.last_seq)
    temporary = target.with_name(f".{target.name}.part")
    with _writer(temporary, as_tar=target.suffix == ".tar") as write:
        write(HEAD, msgspec.json.encode(head) + b"\n")
        write(RECORDS, encode_lines(source.records))
        for digest in named_artifacts(source) if artifacts else ():
            write(_member(digest), source.artifacts.get(digest))
    temporary.rename(target)
    return head


def named_artifacts(source: Source) -> list[str]:
    """Digests of all artifacts that the records name, sorted. Raises: Unreadable."""
    return sorted({digest for event in source.events() for digest in artifacts_of(event)})


def read_export(path: Path, *, artifacts: ArtifactReader | None = None) -> Source:
    """`artifacts`: where they are if the export does not hold them.

    Raises: ExportError where it is no export; what its records are worth is for `replay` to say.
    """
    files: FolderFiles | TarFiles = FolderFiles(path) if path.is_dir() else TarFiles(path)
    try:
        head = msgspec.json.decode(files.read(HEAD), type=Head)
        records: Sequence[Stored] = list(decode_lines(files.read(RECORDS)))
    except (KeyError, msgspec.MsgspecError, LineError) as error:
        raise ExportError(f"{path} is not an export, or a damaged one: {error}") from error
    if head.format != FORMAT:
        raise ExportError(f"{path} has the format {head.format!r}, this code reads {FORMAT}")
    if head.records != len(records) or (records and head.last_seq < records[-1].seq):
        raise ExportError(f"{path} is damaged: {HEAD} and {RECORDS} do not agree on how many records there are")
    return Source(head.run, records, _Artifacts(files, artifacts), head.last_seq)


class FolderFiles:
    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, name: str) -> bytes:
        """Raises: KeyError. Links are not followed out: names are fixed, and a link is refused."""
        path = self._root / name
        if path.is_symlink() or not path.is_file():
            raise KeyError(name)
        return path.read_bytes()


class TarFiles:
    def __init__(self, path: Path) -> None:
        """Raises: ExportError."""
        self._path = path
        try:
            with tarfile.open(path, "r:") as tar:
                self._places = {info.name: (info.offset_data, info.size) for info in tar if info.isreg()}
        except (tarfile.TarError, FileNotFoundError) as error:
            raise ExportError(f"{path} is not an export: {error}") from error

    def read(self, name: str) -> bytes:
        """Raises: KeyError."""
        offset, size_bytes = self._places[name]
        with self._path.open("rb") as opened:
            opened.seek(offset)
            return opened.read(size_bytes)


class _Artifacts:
    """Artifacts of an export, with another store behind it."""

    def __init__(self, files: FolderFiles | TarFiles, other: ArtifactReader | None) -> None:
        self._files = files
        self._other = other

    def get(self, digest: str) -> bytes:
        try:
            data = self._files.read(_member(digest))
        except KeyError:
            if self._other is not None:
                return self._other.get(digest)
            raise ArtifactMissing(digest, "not in the export") from None
        if sha256(data).hexdigest() != digest:
            raise ArtifactCorrupt(digest, "the export holds other bytes")
        return data


def _member(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise ArtifactMissing(repr(digest), "not a sha256 digest of 64 hex digits")
    return f"artifacts/sha256/{digest[:2]}/{digest}"


@contextmanager
def _writer(path: Path, *, as_tar: bool) -> Iterator[Write]:
    if as_tar:
        with tarfile.open(path, "w:", format=tarfile.PAX_FORMAT) as tar:
            yield lambda name, data: _add(tar, name, data)
        return
    path.mkdir()

    def write(name: str, data: bytes) -> None:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)

    yield write


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o644
    tar.addfile(info, io.BytesIO(data))
