"""An archive is canonical: one set of files has one byte string, and nothing else is read."""

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.kernel.archive import ArchiveError, FileEntry, digest, pack, read_tree, unpack, write_tree

PARTS = st.text(st.sampled_from("ab.-_ éß漢\U0001f600'\"\\$"), min_size=1, max_size=40).filter(
    lambda p: p not in (".", "..")
)
NAMES = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
FILES = st.dictionaries(NAMES, st.builds(FileEntry, st.binary(max_size=1200), st.booleans()), max_size=6)


def _fits(files: dict[str, FileEntry]) -> bool:
    return not any(other.startswith(name + "/") for name in files for other in files)


@given(FILES.filter(_fits))
def test_what_is_packed_comes_back_and_packs_to_the_same_bytes(files: dict[str, FileEntry]) -> None:
    data = pack(files)
    assert unpack(data) == files
    assert pack(dict(reversed(unpack(data).items()))) == data


@given(FILES.filter(_fits))
def test_tarfile_reads_the_same_names_modes_and_bytes(files: dict[str, FileEntry]) -> None:
    with tarfile.open(fileobj=io.BytesIO(pack(files))) as tar:
        members = tar.getmembers()
        read = {m.name: FileEntry(tar.extractfile(m).read(), m.mode == 0o755) for m in members}  # type: ignore[union-attr]
    assert read == files
    assert [m.name.encode() for m in members] == sorted(name.encode() for name in files)
    assert all((m.mtime, m.uid, m.gid) == (0, 0, 0) and m.mode in (0o644, 0o755) for m in members)


@given(FILES.filter(_fits), st.data())
def test_a_changed_byte_is_refused_or_another_canonical_archive(
    files: dict[str, FileEntry], data: st.DataObject
) -> None:
    packed = bytearray(pack(files))
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read = unpack(bytes(packed))
    except ArchiveError:
        return
    assert pack(read) == bytes(packed)


@given(st.binary(max_size=3000))
def test_random_bytes_are_an_archive_error_or_canonical(data: bytes) -> None:
    try:
        read = unpack(data)
    except ArchiveError:
        return
    assert pack(read) == data


@given(st.text(max_size=300))
def test_any_name_is_either_refused_or_kept(name: str) -> None:
    try:
        data = pack({name: FileEntry(b"x")})
    except ArchiveError:
        return
    assert list(unpack(data)) == [name]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FILES.filter(_fits))
def test_a_tree_written_and_read_is_the_same_files(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, FileEntry]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    write_tree(files, root)
    assert read_tree(root) == files
    assert all(path.stat().st_mtime == 0 for path in Path(root).rglob("*"))


def test_the_archive_of_nothing_is_two_zero_blocks() -> None:
    assert pack({}) == bytes(1024)
    assert digest(pack({})) == "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"
