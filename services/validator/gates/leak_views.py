"""What can be read from a file's bytes: they themselves, and what lies in them compressed, packed, encoded or quoted.

Everything is bounded, since the bytes are an author's: how deep, how many parts, and how many bytes come out in all.
"""

import base64
import binascii
import bz2
import codecs
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

DEPTH_MAX = 4
PARTS_MAX = 5000
"""Members of one archive, objects of one pack, encoded runs of one text."""
TEXT_BYTES_MAX = 2 * 2**20
"""Larger texts are read as they are, and not decoded further."""
TURNED_BYTES_MAX = 64 * 1024
"""The same for turning every letter of a text."""
RUN_CHARS_MIN = 32
HEAD_BYTES = 1024

Part: TypeAlias = tuple[str, bytes]
"""How it is wrapped, and the bytes."""


class _Run:
    """Is there a run of so many letters of one alphabet? Far quicker than an expression on what has none."""

    def __init__(self, alphabet: bytes, length: int, *, left_out: bytes = b"") -> None:
        self._marks = bytes(ord("x") if letter in alphabet else ord(" ") for letter in range(256))
        self._run, self._left_out = b"x" * length, left_out

    def is_in(self, text: bytes) -> bool:
        return self._run in text.translate(self._marks, self._left_out)


_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{32,}(?:\r?\n[A-Za-z0-9+/_-]+)*={0,2}")
_BASE64_RUN = _Run(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-", RUN_CHARS_MIN)
_HEX = re.compile(rb"(?:[0-9A-Fa-f]{2}[\s:]?){24,}")
_HEX_RUN = _Run(b"0123456789ABCDEFabcdef", 2 * 24, left_out=b" \t\r\n\v\f:")
_GIT = re.compile(rb"(?:blob|tree|commit|tag) \d+\0")
_DAMAGED = (zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, ValueError, IndexError)
_TURNED = ("rot13", "reversed")
_DELTAS = {6: "offset", 7: "name"}
_NAME_BYTES = 20


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


@dataclass
class Budget:
    """How many bytes may still be taken out of wrappings; `spent_out` says that some were left."""

    left: int
    spent_out: bool = False

    def take(self, size: int) -> None:
        self.left -= size
        if self.left <= 0:
            self.left, self.spent_out = 0, True


def views(content: bytes, budget: Budget) -> Iterator[Part]:
    """The bytes themselves ("") and what is in them, in any depth up to DEPTH_MAX."""
    pending = [("", content, 0)]
    while pending:
        how, data, depth = pending.pop()
        yield how, data
        if depth == DEPTH_MAX:
            continue
        try:
            turned = how.endswith(_TURNED)
            for number, (wrapping, inner) in enumerate(_inside(data, budget, turned=turned)):
                budget.take(len(inner))
                if number == PARTS_MAX or budget.spent_out:
                    budget.spent_out = True
                    break
                pending.append((f"{how}, {wrapping}" if how else wrapping, inner, depth + 1))
        except _DAMAGED:
            continue  # not what its first bytes promise


def is_text(data: bytes) -> bool:
    return b"\0" not in data[:HEAD_BYTES]


def _inside(data: bytes, budget: Budget, *, turned: bool) -> Iterator[Part]:
    for magic, name, make in _COMPRESSED:
        if data.startswith(magic):
            yield name, _decompressed(make, data, budget.left)
            return
    if data.startswith(_ZLIB):
        inner = _decompressed(zlib.decompressobj, data, budget.left)
        found = _GIT.match(inner)
        yield ("git object", inner[found.end() :]) if found else ("zlib", inner)
    elif data.startswith(b"PK\x03\x04"):
        yield from _zip(data, budget)
    elif data[257:262] == b"ustar":
        yield from _tar(data)
    elif data.startswith(b"PACK"):
        yield from _pack(data, budget)
    elif data.startswith((b"\xff\xfe", b"\xfe\xff")):
        yield "utf-16", data.decode("utf-16", "replace").encode()
    elif len(data) <= TEXT_BYTES_MAX and is_text(data):
        yield from _encoded(data)
        if len(data) <= TURNED_BYTES_MAX and not turned:
            letters = data.decode("utf-8", "replace")
            yield "rot13", codecs.encode(letters, "rot13").encode()
            yield "reversed", letters[::-1].encode()


def _gunzip() -> _Decompressor:
    return zlib.decompressobj(31)


_COMPRESSED: tuple[tuple[bytes, str, Callable[[], _Decompressor]], ...] = (
    (b"\x1f\x8b", "gzip", _gunzip),
    (b"BZh", "bzip2", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\0", "xz", lzma.LZMADecompressor),
)


_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_KNOWN = (*(magic for magic, _, _ in _COMPRESSED), *_ZLIB, b"PK\x03\x04", b"PACK", b"\xff\xfe", b"\xfe\xff")
_PRINTABLE = bytes((*range(7, 14), 27, *range(32, 127), *range(128, 256)))


def _decompressed(make: Callable[[], _Decompressor], data: bytes, bytes_max: int) -> bytes:
    """All streams that follow one another, up to `bytes_max`."""
    out: list[bytes] = []
    while data and bytes_max > 0:
        stream = make()
        out.append(stream.decompress(data, bytes_max))
        bytes_max -= len(out[-1])
        data = stream.unused_data if stream.eof else b""
    return b"".join(out)


def _zip(data: bytes, budget: Budget) -> Iterator[Part]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            if member.flag_bits & 1:
                continue  # its key is not here either
            try:
                with archive.open(member) as file:
                    yield f"zip member {member.filename[:60]}", file.read(budget.left)
            except (*_DAMAGED, NotImplementedError):
                continue


def _tar(data: bytes) -> Iterator[Part]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isreg() else None
            if file is not None:
                yield f"tar member {member.name[:60]}", file.read()


def _pack(data: bytes, budget: Budget) -> Iterator[Part]:
    """Objects of a git pack one after another. Of a delta its own bytes, which hold the text that it adds."""
    place = 12
    for _ in range(int.from_bytes(data[8:12])):
        kind, place = (data[place] >> 4) & 7, _after_number(data, place)
        if _DELTAS.get(kind) == "offset":
            place = _after_number(data, place)
        elif _DELTAS.get(kind) == "name":
            place += _NAME_BYTES
        stream = zlib.decompressobj()
        out: list[bytes] = []
        room = budget.left
        while not stream.eof and place < len(data) and room > 0:
            chunk = data[place : place + 65_536]
            out.append(stream.decompress(chunk, room))
            room -= len(out[-1])
            place += len(chunk) - len(stream.unused_data)
        yield "git pack", b"".join(out)


def _after_number(data: bytes, place: int) -> int:
    """Behind a number whose bytes but for the last have their top bit set."""
    while data[place] & 0x80:
        place += 1
    return place + 1


def _encoded(text: bytes) -> Iterator[Part]:
    for run in _BASE64.finditer(text) if _BASE64_RUN.is_in(text) else ():
        letters = b"".join(run[0].split()).rstrip(b"=").translate(bytes.maketrans(b"-_", b"+/"))
        yield from _sensible("base64", _base64(letters))
    for run in _HEX.finditer(text) if _HEX_RUN.is_in(text) else ():
        digits = run[0].translate(None, b" \t\r\n\v\f:")
        yield from _sensible("hexadecimal", binascii.unhexlify(digits[: len(digits) & ~1]))
    if b"\\n" in text:
        yield "escaped", _unescaped(text)


def _sensible(wrapping: str, decoded: bytes) -> Iterator[Part]:
    """Words and numbers decode to noise, too: what comes out must be text, or begin as something known."""
    if decoded.startswith(_KNOWN) or _is_utf8(decoded[:HEAD_BYTES]):
        yield wrapping, decoded


def _is_utf8(head: bytes) -> bool:
    """Text, and whole but for a last letter that the end may cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return not head.translate(None, _PRINTABLE)


def _base64(letters: bytes) -> bytes:
    # A last group of one letter is no byte.
    whole = letters[:-1] if len(letters) % 4 == 1 else letters
    return base64.b64decode(whole + b"=" * (-len(whole) % 4))


def _unescaped(text: bytes) -> bytes:
    for written, meant in ((b"\\n", b"\n"), (b"\\t", b"\t"), (b'\\"', b'"'), (b"\\\\", b"\\")):
        text = text.replace(written, meant)
    return text
