"""Mutants of a reference solution: the same files with one thing wrong, as careless agents get it wrong. Pure.

A shell script is cut into its statements by bash itself (SPLIT, VALID): nobody else parses it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise, takewhile, zip_longest
from pathlib import PurePosixPath
from random import Random

from services.kernel.archive import FileEntry

SCRIPT = "solve.sh"
SCRIPT_BYTES_MAX = 64 * 1024
"""Longer files are not mutated: a script goes to bash as one argument."""
LINES_MAX = 600
"""Of a script; what comes after stays as it is."""
ALTERED_MAX = 3
"""Changes of one output."""
SHOWN_CHARS_MAX = 80
CONTEXT_CHARS = 24

SPLIT = r"""
number=0 start=1 chunk=
while IFS= read -r line || [ -n "$line" ]; do
  number=$((number + 1)) chunk+=$line$'\n'
  [[ $line == *\\ ]] && continue
  [ -n "$(bash -O extglob -n -c "$chunk" 2>&1)" ] && continue
  echo "$start $number"
  start=$((number + 1)) chunk=
done
"""
"""Reads a script; prints the first and last line of each statement: the shortest run of lines that parses."""
VALID = r"""
while IFS= read -r -d '' language && IFS= read -r -d '' text; do
  case $language in
    shell) said=$(bash -O extglob -n -c "$text" 2>&1) ;;
    python) said=$(python3 -I -S -W ignore -c 'import ast, sys; ast.parse(sys.argv[1])' "$text" 2>&1) ;;
    *) said= ;;
  esac
  [ -z "$said" ] && echo good || echo bad
done
"""
"""Reads pairs of language and text, each ended by NUL; prints good or bad for each."""


class Kind(StrEnum):
    altered = "output altered"
    emptied = "output emptied"
    dropped = "step dropped"
    value = "value changed"
    half = "second half missing"
    swapped = "steps swapped"
    nothing = "empty solution"


@dataclass(frozen=True)
class Mutant:
    kind: Kind
    where: str
    """File and line of the solution, or the output's path."""
    change: str
    """What was and what is, shortened."""
    name: str = SCRIPT
    """The file of the solution that is other."""
    content: bytes = b""
    output: str | None = None
    """The file that holds `content` after the true solution has run, instead of another solution."""

    def to_validate(self) -> bytes:
        """As VALID reads it. What is in an output need not parse."""
        if self.output is not None:
            return b"other\0\0"
        return f"{_language(self.name, self.content)}\0".encode() + self.content + b"\0"


def script_mutants(script: bytes, spans: Iterable[tuple[int, int]], workdir: str, rng: Random) -> list[Mutant]:
    """All mutants of a shell script. `spans`: first and last line of each statement, from 1."""
    lines = script.decode("utf-8", "surrogateescape").split("\n")
    steps = [(first - 1, last) for first, last in spans if not _has_no_effect(lines[first - 1 : last], workdir)]
    found = []
    for first, last in steps:
        text = "\n".join(lines[first:last])
        found.append(_mutant(Kind.dropped, SCRIPT, lines, (first, last), []))
        for inner in range(first + 1, last - 1) if "<<" not in text else ():
            if not _has_no_effect([lines[inner]], workdir):
                found.append(_mutant(Kind.dropped, SCRIPT, lines, (inner, inner + 1), [":"]))
        found += [_mutant(Kind.value, SCRIPT, lines, (first, last), other.split("\n")) for other in _values(text, rng)]
    for (first, middle), (second, last) in pairwise(steps):
        swapped = [*lines[second:last], *lines[middle:second], *lines[first:middle]]
        found.append(_mutant(Kind.swapped, SCRIPT, lines, (first, last), swapped))
    if len(steps) >= 4:
        found.append(_mutant(Kind.half, SCRIPT, lines, (steps[len(steps) // 2][0], steps[-1][1]), []))
    return found


def file_mutants(name: str, content: bytes, rng: Random) -> list[Mutant]:
    """All mutants of another file of a solution: values changed, and where it is Python, lines dropped."""
    lines = content.decode("utf-8", "surrogateescape").split("\n")
    is_python = _language(name, content) == "python"
    said = _docstrings(lines) if is_python else frozenset()
    found = []
    for number, line in enumerate(lines[:LINES_MAX]):
        if not line.strip() or number in said or line.lstrip().startswith(("#", "//", "import ", "from ")):
            continue
        found += [_mutant(Kind.value, name, lines, (number, number + 1), [other]) for other in _values(line, rng)]
        if is_python and _PYTHON_STEP.match(line):
            indent = line[: len(line) - len(line.lstrip())]
            found.append(_mutant(Kind.dropped, name, lines, (number, number + 1), [f"{indent}pass"]))
    return found


def output_mutants(path: str, content: bytes | None, rng: Random) -> list[Mutant]:
    """All mutants of a file that the solution made. Without its content (it is too long) it can be emptied alone."""
    if content == b"":
        return []
    found = [Mutant(Kind.emptied, path, "emptied", output=path)]
    if content is None or len(content) < 2:
        return found
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        return [*found, Mutant(Kind.altered, path, "cut in half", content=content[: len(content) // 2], output=path)]
    said = _docstrings(lines) if _language(path, content) == "python" else frozenset()
    full = [
        number
        for number, line in enumerate(lines)
        if line.strip() and not line.lstrip().startswith(_COMMENTS) and number not in said
    ]
    changes: list[tuple[int, str | None]] = [
        (number, other) for number in full for other in _values(lines[number], rng)
    ]
    rng.shuffle(changes)
    if len(full) > 1:
        changes.insert(rng.randrange(2), (rng.choice(full), None))
    for number, other in changes[:ALTERED_MAX]:
        altered = "\n".join([*lines[:number], *([] if other is None else [other]), *lines[number + 1 :]])
        change = f"line {number + 1}: {_change(lines[number], other or '')}"
        found.append(Mutant(Kind.altered, path, change, content=altered.encode(), output=path))
    return found


def nothing() -> Mutant:
    return Mutant(Kind.nothing, SCRIPT, "exit 0", content=b"#!/bin/bash\nexit 0\n")


def used_files(solution: Mapping[str, FileEntry]) -> Iterator[tuple[str, bytes]]:
    """Text files beside the script that it names."""
    script = solution[SCRIPT].content
    for name, entry in sorted(solution.items()):
        is_text = b"\0" not in entry.content and len(entry.content) <= SCRIPT_BYTES_MAX
        if name != SCRIPT and is_text and PurePosixPath(name).name.encode() in script:
            yield name, entry.content


def choose(candidates: Sequence[Mutant], count: int, rng: Random) -> list[Mutant]:
    """At most `count`, in turn from every kind, and within a kind from every place; chance decides the rest."""
    shuffled = rng.sample(candidates, len(candidates))
    turns: dict[tuple[Kind, str], int] = {}
    order = []
    for mutant in shuffled:
        place = (mutant.kind, mutant.where)
        turns[place] = turns.get(place, -1) + 1
        order.append((turns[place], mutant))
    piles = [[mutant for _, mutant in sorted(order, key=_turn) if mutant.kind is kind] for kind in Kind]
    return [mutant for row in zip_longest(*piles) for mutant in row if mutant is not None][:count]


def read_spans(printed: bytes) -> list[tuple[int, int]]:
    """What SPLIT printed; anything else in the output is a complaint of bash."""
    return [(int(first), int(last)) for first, last in re.findall(rb"(?m)^(\d+) (\d+)$", printed)]


def is_shell(script: bytes) -> bool:
    return _language(SCRIPT, script) == "shell"


def _turn(item: tuple[int, Mutant]) -> int:
    return item[0]


_COMMENTS = ("#", "//", "--", ";", "/*", "*")
_READERS = re.compile(r"(set|shopt|echo|printf|sleep|true|:|trap|exit|pwd|ls|cat|head|tail|grep|wc|file|stat)\b")
_EFFECT = re.compile(r"[>|&;`]|\$\(|<\(")
_NUMBER = re.compile(r"(?<![\w.&>$])(\d{1,15})(?![\w>&])")
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_WORD = re.compile(r"(?<![\w$\\{%])[A-Za-z]{3,}")
_BARE = re.compile(r"(?<=\s)[\w./-]*[A-Za-z]{3,}[\w./-]*(?=\s|$)")
_PYTHON_STEP = re.compile(
    r"\s*(?!(?:def|class|if|elif|else|for|while|with|try|except|finally|return|pass)\b)\w.*[^:,(\[{\\]$"
)
"""A line that can be left out: validity decides in the end."""


def _language(name: str, content: bytes) -> str:
    first = content.partition(b"\n")[0]
    if name.endswith(".py") or (first.startswith(b"#!") and b"python" in first):
        return "python"
    return "shell" if name.endswith(".sh") and (not first.startswith(b"#!") or first.endswith(b"sh")) else "other"


def _docstrings(lines: Sequence[str]) -> frozenset[int]:
    """Numbers of the lines of strings in three quotes that begin a line: no program does anything else for them."""
    found: set[int] = set()
    quotes = ""
    for number, line in enumerate(lines):
        text = line.strip()
        if quotes:
            found.add(number)
            quotes = "" if quotes in text else quotes
        elif text.startswith(('"""', "'''")):
            found.add(number)
            quotes = "" if text[:3] in text[3:] else text[:3]
    return frozenset(found)


def _has_no_effect(lines: Sequence[str], workdir: str) -> bool:
    """Obviously nothing that a later state shows: comments, settings of the shell, looking around."""
    text = "\n".join(lines).strip()
    if not text or all(line.lstrip().startswith("#") or not line.strip() for line in lines):
        return True
    if text in ("cd", f"cd {workdir}", f'cd "{workdir}"', "fi", "done", "else", "then", "do", "esac", "{", "}", ";;"):
        return True
    return bool(_READERS.match(text)) and not _EFFECT.search(text)


def _values(text: str, rng: Random) -> Iterator[str]:
    """The text with a number one higher, and with a word in quotes (without any: a bare one) spelt otherwise."""
    numbers = list(_NUMBER.finditer(text))
    if numbers:
        at = rng.choice(numbers)
        yield f"{text[: at.start()]}{int(at[0]) + 1}{text[at.end() :]}"
    words = [
        (found.start() + word.start(), word[0]) for found in _QUOTED.finditer(text) for word in _WORD.finditer(found[0])
    ] or [
        (found.start() + word.start(), word[0])
        for found in _BARE.finditer(text)
        for word in list(_WORD.finditer(found[0]))[:1]
    ]
    if words:
        start, word = rng.choice(words)
        yield f"{text[:start]}{word}q{text[start + len(word) :]}"


def _mutant(kind: Kind, name: str, lines: Sequence[str], place: tuple[int, int], instead: Sequence[str]) -> Mutant:
    first, last = place
    content = "\n".join([*lines[:first], *instead, *lines[last:]]).encode("utf-8", "surrogateescape")
    was, now = list(lines[first:last]), list(instead)
    while was and now and was[0] == now[0]:
        first, was, now = first + 1, was[1:], now[1:]
    while was and now and was[-1] == now[-1]:
        was, now = was[:-1], now[:-1]
    return Mutant(kind, f"{name}:{first + 1}", _change(" / ".join(was), " / ".join(now)), name, content)


def _change(was: str, now: str) -> str:
    """The two from a little before where they part."""
    if not now.strip(":"):
        return f"without {_short(was)}"
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(was, now, strict=False)))
    start = max(0, shared - CONTEXT_CHARS)
    return f"{_short(was[start:])} -> {_short(now[start:])}"


def _short(text: str) -> str:
    text = "".join(letter if letter.isprintable() else " " for letter in text).strip()
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[: SHOWN_CHARS_MAX - 1]}…"
