"""What lies in a file's bytes is unwrapped as far as its bounds allow, and hostile bytes end in nothing worse."""

import base64
import bz2
import codecs
import gzip
import io
import lzma
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.validator.gates.leak_views import DEPTH_MAX, PARTS_MAX, Budget, views

TEXT = b"#!/bin/bash\nset -e\nawk '{sum += $3} END {print sum}' orders.csv > total.txt\n"
ROOM = 2**22


def zipped(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("kept/solve.sh", data)
    return buffer.getvalue()


def tarred(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("solve.sh")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


WRAPPINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zlib": zlib.compress,
    "git object": lambda data: zlib.compress(b"blob %d\0" % len(data) + data),
    "zip member kept/solve.sh": zipped,
    "tar member solve.sh": tarred,
    "base64": base64.encodebytes,
    "hexadecimal": lambda data: data.hex(" ").encode(),
    "rot13": lambda data: codecs.encode(data.decode(), "rot13").encode(),
    "reversed": lambda data: data[::-1],
    "escaped": lambda data: b'{"solution": "' + data.replace(b"\n", b"\\n") + b'"}',
    "utf-16": lambda data: data.decode().encode("utf-16"),
}


def seen(data: bytes, room: int = ROOM) -> list[tuple[str, bytes]]:
    return list(views(data, Budget(room)))


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_a_wrapped_text_is_seen_and_its_wrapping_named(wrapping: str) -> None:
    found = seen(WRAPPINGS[wrapping](TEXT))
    assert any(how == wrapping and TEXT.strip() in data for how, data in found)


def test_wrappings_in_wrappings_are_seen_up_to_the_depth() -> None:
    data = TEXT
    for _ in range(DEPTH_MAX):
        data = gzip.compress(data)
    assert (", ".join(["gzip"] * DEPTH_MAX), TEXT) in seen(data)
    assert TEXT not in [inner for _, inner in seen(gzip.compress(data))]
    assert ("tar member solve.sh, gzip, base64", TEXT) in seen(tarred(gzip.compress(base64.encodebytes(TEXT))))


def test_streams_that_follow_one_another_are_one() -> None:
    assert ("gzip", b"a" + TEXT) in seen(gzip.compress(b"a") + gzip.compress(TEXT))


def test_the_objects_of_a_pack_that_git_wrote_are_seen(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@localhost"]
    subprocess.run([*git, "init", "-q"], check=True)
    for number in range(3):
        (tmp_path / "solve.sh").write_bytes(TEXT + b"true\n" * number)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", str(number)], check=True)
    subprocess.run([*git, "gc", "-q"], check=True)
    (pack,) = (tmp_path / ".git/objects/pack").glob("*.pack")
    found = seen(pack.read_bytes())
    assert any(how == "git pack" and TEXT in data for how, data in found)
    assert sum(how == "git pack" for how, _ in found) == 9


def test_a_bomb_gives_no_more_than_its_bound() -> None:
    bomb = gzip.compress(gzip.compress(bytes(2**24)))
    budget = Budget(2**20)
    assert sum(len(data) for _, data in views(bomb, budget)) < 2**20 + len(bomb) + 1
    assert budget.spent_out
    roomy = Budget(2**25)
    assert len(list(views(bomb, roomy))) == 3
    assert not roomy.spent_out


def test_an_archive_of_very_many_members_is_read_to_its_bound() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number in range(PARTS_MAX + 10):
            archive.writestr(str(number), b"")
    budget = Budget(ROOM)
    assert len(list(views(buffer.getvalue(), budget))) == PARTS_MAX + 1
    assert budget.spent_out


MAGICS = (b"\x1f\x8b", b"BZh9", b"\xfd7zXZ\0", b"\x78\x9c", b"PK\x03\x04", b"PACK\0\0\0\2\0\0\0\7", b"\xff\xfe", b"")


@settings(max_examples=300, deadline=None)
@given(magic=st.sampled_from(MAGICS), rest=st.binary(max_size=200))
def test_no_bytes_end_in_an_error(magic: bytes, rest: bytes) -> None:
    assert seen(magic + rest)[0] == ("", magic + rest)


@pytest.mark.parametrize("wrapping", [name for name in WRAPPINGS if name not in ("rot13", "reversed", "escaped")])
@settings(max_examples=30, deadline=None)
@given(cut=st.floats(0, 1), flip=st.floats(0, 1, exclude_max=True))
def test_a_damaged_wrapping_ends_in_no_error(wrapping: str, cut: float, flip: float) -> None:
    whole = bytearray(WRAPPINGS[wrapping](TEXT))
    whole[int(flip * len(whole))] ^= 0x41
    assert seen(bytes(whole[: int(cut * len(whole))]))
