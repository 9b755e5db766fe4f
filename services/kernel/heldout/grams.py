"""What the decontamination gate compares: digests of the word 13-grams (stride 1) of the held-out instructions.

Text becomes words: lower case, Unicode form NFKC, runs of letters and digits; so `plum.txt` is two words. A held-out
instruction of fewer than 13 words counts whole, as one gram of its own length.

Shared template text is removed first, by two rules, because an honest task may be worded alike:
- a set written by templates (`near`) names the words that only it may draw; its grams without such a word are wording
  of a template, and go;
- a gram that stands in `COMMON_MIN` or more instructions of one set is that set's common wording, and goes.
So what is left marks a task, not a phrase. Digests are the first 8 bytes of a sha256: a chance hit is one in 10^13 for
a million grams against a million.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

import msgspec

GRAM_WORDS = 13
COMMON_MIN = 3
_WORD = re.compile(r"[^\W_]+")


class GramsError(ValueError):
    """The artifact is not a set of grams that this code can read."""


@dataclass(frozen=True)
class HeldOutText:
    """The instructions of one held-out set."""

    instructions: tuple[str, ...]
    own_words: frozenset[str] | None = None
    """Words that only this set may draw; None where no template wrote it."""


class _Grams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    words: int
    grams: dict[int, list[str]]
    """By length in words: digests, sorted."""


def words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).lower())


def build_grams(sets: Iterable[HeldOutText]) -> bytes:
    """The artifact named by RunStarted.heldout_grams. Equal sets give equal bytes."""
    found: dict[int, set[str]] = {}
    for each in sets:
        counts = Counter(gram for text in each.instructions for gram in set(_grams(words(text))))
        for gram, count in counts.items():
            if count < COMMON_MIN and (each.own_words is None or not each.own_words.isdisjoint(gram)):
                found.setdefault(len(gram), set()).add(_digest(gram))
    grams = {length: sorted(found[length]) for length in sorted(found)}
    return msgspec.json.encode(_Grams(version=1, words=GRAM_WORDS, grams=grams))


def read_grams(artifact: bytes) -> Mapping[int, frozenset[str]]:
    """Digests by length in words, for `shared_grams`. Raises GramsError."""
    try:
        grams = msgspec.json.decode(artifact, type=_Grams)
    except msgspec.MsgspecError as error:
        raise GramsError(f"not a set of grams: {error}") from error
    if grams.version != 1:
        raise GramsError(f"grams of version {grams.version}, this code reads 1: upgrade envwheel")
    return {length: frozenset(digests) for length, digests in grams.grams.items()}


def shared_grams(instruction: str, grams: Mapping[int, frozenset[str]]) -> list[str]:
    """The word sequences of `instruction` that stand in a held-out one, in order. Empty: decontaminated."""
    said = words(instruction)
    return [
        " ".join(gram)
        for length, digests in sorted(grams.items())
        for gram in _windows(said, length)
        if _digest(gram) in digests
    ]


def _grams(said: list[str]) -> list[tuple[str, ...]]:
    return _windows(said, min(GRAM_WORDS, len(said))) if said else []


def _windows(said: list[str], length: int) -> list[tuple[str, ...]]:
    return [tuple(said[start : start + length]) for start in range(len(said) - length + 1)]


def _digest(gram: tuple[str, ...]) -> str:
    return sha256(" ".join(gram).encode()).hexdigest()[:16]
