"""What the decontamination gate compares: digests of the word 13-grams (stride 1) of the held-out instructions.

Text becomes words: lower case, Unicode form NFKC, invisible letters dropped, runs of letters and digits; so `plum.txt`
is two words. A held-out instruction of fewer than 13 words counts whole, as one gram of its own length; one of fewer
than WHOLE_WORDS_MIN only where an instruction says nothing else.

Shared template text is removed first, by two rules, because an honest task may be worded alike:
- a set written by templates (`near`) names the words that only it may draw; its grams without such a word are wording
  of a template, and go;
- a gram that stands in COMMON_MIN or more instructions of one set, and in COMMON_SHARE of them, is that set's common
  wording, and goes.
So what is left marks a task, not a phrase.

The file: one line of JSON, `{"version":2,"words":13,"counts":{"5":1,"13":870}}`, filled with spaces to a multiple of
8 bytes with its newline; then for each length, shortest first, so many digests of 8 bytes, least significant byte
first, ascending. A digest is the first 8 bytes of the sha256 of the words joined by spaces, read with the most
significant byte first: a chance hit is one in 10^13 for a million grams against a million. Whoever holds a set back can
hand out this file instead of the set. Version 1, all in JSON, is still read.
"""

import mmap
import re
import sys
import unicodedata
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate
from math import ceil
from pathlib import Path
from typing import TypeAlias

import msgspec

GRAM_WORDS = 13
COMMON_MIN = 3
COMMON_SHARE = 0.01
WHOLE_WORDS_MIN = 4
HEADER_BYTES_MAX = 4096
_DIGEST_BYTES = 8
_WORD = re.compile(r"[^\W_]+")
_INVISIBLE = re.compile("[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]")


class GramsError(ValueError):
    """The bytes are not a set of grams that this code can read, or two sets are not of one kind."""


@dataclass(frozen=True)
class HeldOutText:
    """The instructions of one held-out set."""

    instructions: tuple[str, ...]
    own_words: frozenset[str] | None = None
    """Words that only this set may draw; None where no template wrote it."""


class SortedDigests:
    """Digests where they lie, in an artifact's bytes or in a mapped file: a million cost no memory of their own."""

    def __init__(self, ascending: Sequence[int]) -> None:
        self.ascending = ascending

    def __len__(self) -> int:
        return len(self.ascending)

    def __contains__(self, digest: int) -> bool:
        place = bisect_left(self.ascending, digest)
        return place < len(self.ascending) and self.ascending[place] == digest


Artifact: TypeAlias = bytes | mmap.mmap
Grams: TypeAlias = Mapping[int, SortedDigests]
"""By length in words."""


class _Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    words: int
    counts: dict[int, int] = {}
    grams: dict[int, list[str]] = {}
    """Of version 1: the digests themselves, in hex, sorted."""


def words(text: str) -> list[str]:
    folded = text if text.isascii() else _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
    return _WORD.findall(folded.lower())


def build_grams(sets: Iterable[HeldOutText], *, gram_words: int = GRAM_WORDS, known: Iterable[Artifact] = ()) -> bytes:
    """The artifact named by RunStarted.heldout_grams: the grams of `sets`, and those of artifacts `known`. Equal sets
    give equal bytes.

    Raises:
        GramsError: one of `known` is no artifact, or has grams of another length.
    """
    found: dict[int, list[Sequence[int]]] = {}
    for each in sets:
        for length, digests in _marking(each, gram_words).items():
            found.setdefault(length, []).append(digests)
    for artifact in known:
        if (other := _header(artifact)[0].words) != gram_words:
            raise GramsError(f"a set of {other}-grams cannot be joined to one of {gram_words}-grams")
        for length, theirs in read_grams(artifact).items():
            found.setdefault(length, []).append(theirs.ascending)
    return _written({length: _unique(found[length]) for length in sorted(found)}, gram_words)


def read_grams(artifact: Artifact) -> Grams:
    """For `shared_grams`; what it gives looks into `artifact`. Raises GramsError."""
    header, start = _header(artifact)
    if header.version == 1:
        grams = {length: [int(digest, 16) for digest in digests] for length, digests in header.grams.items()}
        return {length: SortedDigests(array("Q", sorted(digests))) for length, digests in grams.items()}
    if len(artifact) != start + _DIGEST_BYTES * sum(header.counts.values()):
        raise GramsError("a set of grams whose counts do not fit its size: it was cut, or is none")
    found: dict[int, SortedDigests] = {}
    for length in sorted(header.counts):
        end = start + _DIGEST_BYTES * header.counts[length]
        found[length] = SortedDigests(_ascending(memoryview(artifact)[start:end], length))
        start = end
    return found


def open_grams(path: Path) -> Grams:
    """As `read_grams`, of a file that stays on disk and is mapped. Raises GramsError, OSError."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            raise GramsError(f"{path} is empty")
        return read_grams(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def shared_grams(instruction: str, grams: Grams) -> list[str]:
    """The word sequences of `instruction` that stand in a held-out one, in order. Empty: decontaminated."""
    said = words(instruction)
    return [
        " ".join(said[place : place + length])
        for length, digests in sorted(grams.items())
        if length >= WHOLE_WORDS_MIN or length == len(said)
        for place, digest in enumerate(_digests(said, length))
        if digest in digests
    ]


def _marking(held_out: HeldOutText, gram_words: int) -> dict[int, Sequence[int]]:
    """By length: digests of the grams that mark a task of the set, once each."""
    import numpy

    found: dict[int, array[int]] = {}
    for text in held_out.instructions:
        said = words(text)
        length = min(gram_words, len(said))
        if not said:
            continue
        own = held_out.own_words
        marks = {
            digest
            for place, digest in enumerate(_digests(said, length))
            if own is None or not own.isdisjoint(said[place : place + length])
        }
        found.setdefault(length, array("Q")).extend(marks)
    common = max(COMMON_MIN, ceil(COMMON_SHARE * len(held_out.instructions)))
    marking: dict[int, Sequence[int]] = {}
    for length, all_digests in found.items():
        digests, counts = numpy.unique(numpy.frombuffer(all_digests, dtype="u8"), return_counts=True)
        marking[length] = array("Q", digests[counts < common].tobytes())
    return marking


def _digests(said: Sequence[str], length: int) -> list[int]:
    """Of every window of `length` words, in order."""
    encoded = [word.encode() for word in said]
    text = b" ".join(encoded)
    ends = [end - 1 for end in accumulate(len(word) + 1 for word in encoded)]
    starts = [0, *(end + 1 for end in ends)]
    return [
        int.from_bytes(sha256(text[start:end]).digest()[:_DIGEST_BYTES])
        for start, end in zip(starts, ends[length - 1 :], strict=False)
    ]


def _unique(parts: Sequence[Sequence[int]]) -> bytes:
    import numpy

    joined = numpy.concatenate([numpy.asarray(part, dtype="u8") for part in parts])
    return numpy.unique(joined).astype("<u8").tobytes()


def _written(digests: Mapping[int, bytes], gram_words: int) -> bytes:
    counts = {length: len(part) // _DIGEST_BYTES for length, part in digests.items() if part}
    header = msgspec.json.encode({"version": 2, "words": gram_words, "counts": counts})
    line = header + b" " * (-(len(header) + 1) % _DIGEST_BYTES) + b"\n"
    return line + b"".join(digests.values())


def _header(artifact: Artifact) -> tuple[_Header, int]:
    """The first line, and where the digests begin. Version 1 is one line without an end."""
    line = artifact[: artifact.find(b"\n", 0, HEADER_BYTES_MAX) + 1] or artifact[:]
    try:
        header = msgspec.json.decode(line, type=_Header)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise GramsError(f"not a set of grams: {error}") from error
    if header.version not in (1, 2):
        raise GramsError(f"grams of version {header.version}, this code reads 1 and 2: upgrade envwheel")
    if len(line) % _DIGEST_BYTES and header.version == 2:
        raise GramsError("not a set of grams: its first line is not filled to a multiple of 8 bytes")
    return header, len(line)


def _ascending(raw: memoryview, length: int) -> Sequence[int]:
    """The digests, checked: in an unsorted file a search would miss what is there."""
    import numpy

    numbers = numpy.frombuffer(raw, dtype="<u8")
    if (numbers[1:] <= numbers[:-1]).any():
        raise GramsError(f"a set of grams whose digests of {length} words are not ascending")
    if sys.byteorder == "little":
        return raw.cast("Q")
    return array("Q", numbers.astype("=u8").tobytes())
