"""Hostile archives and trees are refused, each with a reason that names the member."""

import io
import os
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from services.kernel.archive import ArchiveError, FileEntry, pack, read_tree, unpack, write_tree


def _tar(*members: tarfile.TarInfo, form: int = tarfile.USTAR_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return buffer.getvalue()


def _member(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    for key, value in fields.items():
        setattr(member, key, value)
    return member


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (_tar(_member("/etc/passwd")), "absolute"),
        (_tar(_member("../../x")), "'..'"),
        (_tar(_member("a/./b")), "'..' part"),
        (_tar(_member("l", tarfile.SYMTYPE, linkname="/etc/passwd")), "a symbolic link"),
        (_tar(_member("l", tarfile.LNKTYPE, linkname="/etc/shadow")), "a hard link"),
        (_tar(_member("d", tarfile.DIRTYPE)), "a directory entry"),
        (_tar(_member("c", tarfile.CHRTYPE)), "a character device"),
        (_tar(_member("b", tarfile.BLKTYPE)), "a block device"),
        (_tar(_member("p", tarfile.FIFOTYPE)), "a FIFO"),
        (_tar(_member("s", tarfile.GNUTYPE_SPARSE)), "a sparse file"),
        (_tar(_member("n" * 120), form=tarfile.GNU_FORMAT), "a GNU long name"),
        (_tar(_member("a\nb")), "control"),
        (_tar(_member("a\u202eb"), form=tarfile.PAX_FORMAT), "invisible"),
        (_tar(_member("e\u0301"), form=tarfile.PAX_FORMAT), "NFC"),
        (_tar(_member("x", pax_headers={"size": "1"}), form=tarfile.PAX_FORMAT), "pax header"),
        (_tar(_member("x", pax_headers={"GNU.sparse.map": "0,1"}), form=tarfile.PAX_FORMAT), "pax header"),
        (_tar(_member("x", mode=0o4755)), "not canonical"),
        (_tar(_member("x", mode=0o644, mtime=1)), "not canonical"),
        (_tar(_member("x", mode=0o644, uid=1000)), "not canonical"),
    ],
)
def test_a_foreign_archive_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ArchiveError, match=reason):
        unpack(data)


GOOD = pack({"a": FileEntry(b"1"), "b": FileEntry(b"22")})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "middle of a header"),
        (GOOD[:700], "ends before|middle of a header|padding"),
        (GOOD[:-512], "two zero blocks"),
        (GOOD + bytes(512), "trailing"),
        (GOOD + b"x", "trailing"),
        (GOOD[:1024] + GOOD[:1024] + bytes(1024), "twice"),
        (GOOD[1024:2048] + GOOD[:1024] + bytes(1024), "not sorted"),
        (GOOD[:600] + b"!" + GOOD[601:], "padding"),
        (GOOD[:124] + b"77777777777" + GOOD[135:], "not canonical"),
        (GOOD[:124] + b"\x80" + bytes(10) + GOOD[135:], "octal"),
        (GOOD[:124] + b"-0000000001" + GOOD[135:], "octal"),
        (b"\xff" + GOOD[1:], "not UTF-8"),
        (pack({"a" * 200: FileEntry(b"")}).replace(b"path=", b"Path="), "pax header"),
    ],
)
def test_a_damaged_archive_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ArchiveError, match=reason):
        unpack(data)


def test_a_member_that_says_more_bytes_than_there_are_is_refused() -> None:
    huge = pack({"a": FileEntry(b"x" * 600)})
    with pytest.raises(ArchiveError, match="says 600 bytes"):
        unpack(huge[:1024])


def test_the_bounds_hold_at_the_edge() -> None:
    assert len(unpack(GOOD, files_max=2, bytes_max=len(GOOD))) == 2
    with pytest.raises(ArchiveError, match="more than 1 files"):
        unpack(GOOD, files_max=1)
    with pytest.raises(ArchiveError, match="more than"):
        unpack(GOOD, bytes_max=len(GOOD) - 1)


@pytest.mark.parametrize(
    "names", [("a", "a/b"), ("a/b/c", "a/b"), ("",), ("a//b",), ("a" * 256,), ("/".join(["a" * 200] * 6),)]
)
def test_names_that_no_tree_can_hold_are_not_packed(names: tuple[str, ...]) -> None:
    with pytest.raises(ArchiveError):
        pack({name: FileEntry(b"") for name in names})


def _link(root: Path) -> None:
    (root / "l").symlink_to("/etc/passwd")


def _linked_directory(root: Path) -> None:
    (root / "d").symlink_to("/etc")


def _cycle(root: Path) -> None:
    (root / "loop").symlink_to(".")


def _fifo(root: Path) -> None:
    os.mkfifo(root / "p")


def _socket(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(root / "s"))


def _not_utf8(root: Path) -> None:
    Path(os.fsdecode(os.fsencode(root) + b"/\xff")).write_bytes(b"")


def _newline(root: Path) -> None:
    (root / "a\nb").write_bytes(b"")


@pytest.mark.parametrize("plant", [_link, _linked_directory, _cycle, _fifo, _socket, _not_utf8, _newline])
def test_a_tree_with_links_special_files_or_odd_names_is_refused(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    (tmp_path / "good").write_bytes(b"x")
    plant(tmp_path)
    with pytest.raises(ArchiveError):
        read_tree(tmp_path)


def test_a_linked_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "l").symlink_to("/etc")
    with pytest.raises(OSError, match="Not a directory"):
        read_tree(tmp_path / "l")


def test_a_tree_over_its_bounds_is_refused(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"xx")
    assert len(read_tree(tmp_path, files_max=3, bytes_max=6)) == 3
    with pytest.raises(ArchiveError, match="more than 2 files"):
        read_tree(tmp_path, files_max=2)
    with pytest.raises(ArchiveError, match="over its bound"):
        read_tree(tmp_path, bytes_max=5)


def test_a_sparse_terabyte_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ArchiveError, match="over its bound"):
        read_tree(tmp_path)


def test_a_tree_is_only_written_into_an_empty_place(tmp_path: Path) -> None:
    (tmp_path / "here").symlink_to("/etc")
    with pytest.raises(ArchiveError, match="not empty"):
        write_tree({"here/x": FileEntry(b"")}, tmp_path)
    with pytest.raises(ArchiveError, match=r"'\.\.'"):
        write_tree({"../x": FileEntry(b"")}, tmp_path / "new")
