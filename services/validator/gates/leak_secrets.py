"""What an agent must not find: the files of tests/ and solution/, as text that can be recognised somewhere else.

Healthy tasks share text with their own tests and solutions all the time: an input of which tests keep a pristine
copy, a broken script that the solution writes again, a block of configuration that the instruction asks for. So each
kind of secret counts only where it can mean nothing else:
- the commands of a script (SCRIPT_SHARE of those long enough to be its own; wording that all scripts share is left
  out), or every line of it;
- a program that a script carries in a here-document, in one piece;
- a data file or the text of another here-document, whole, unless the place where it was found is one that the task
  speaks of or an input of the same name;
- a digest of a script.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from services.kernel.archive import FileEntry
from services.validator.gates.leak_views import is_text

LINE_CHARS_MIN = 12
LINES_MIN = 3
SCRIPT_SHARE = 0.6
DATA_BYTES_MIN = 24
_CODE = (".sh", ".bash", ".py", ".js", ".ts", ".rb", ".pl", ".lua", ".go", ".rs", ".c", ".cpp", ".java", ".php", ".sql")
_ENTRIES = ("test.sh", "solve.sh", "solution.sh", "run_tests.sh", "run-tests.sh", "test_outputs.py", "test_state.py")
"""Names that a task's own tests and solution have by custom; a project's own tests have others, and two versions of
those may differ in a few lines only."""
_COMMON = re.compile(
    rb"#|//|set -|cd |import |from \S+ import |export |source |\. |if __name__|if \[ \$\? |trap |exit |local |"
    rb"(sudo )?(apt|apt-get|apk|pip3?|python3? -m (pip|venv)|uv|npm|curl|wget|mkdir|chmod|touch) |"
    rb".*/logs/verifier|echo [01]( |$)"
)
"""Lines that mark no script."""
_HERE = re.compile(rb"(?<!<)<<-?[ \t]*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1")
_RUNS = re.compile(
    rb"(^|[\s/|;&(])(python|node|ruby|perl|bash|sh|awk|sed|php|lua)[0-9.]*\b[^>]*<<|>\s*\S+\.(py|sh|js|rb|pl)\b"
)


class View:
    """One text as secrets are looked for in it."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @cached_property
    def lines(self) -> list[bytes]:
        """Not empty, runs of blanks as one."""
        pieces = self.data.split(b"\n") if is_text(self.data) else re.split(rb"[^\x20-\x7e\t]+", self.data)
        return [line for line in (b" ".join(piece.split()) for piece in pieces) if line]

    @cached_property
    def line_set(self) -> frozenset[bytes]:
        return frozenset(self.lines)

    @cached_property
    def text(self) -> bytes:
        return b"\n" + b"\n".join(self.lines) + b"\n"

    @cached_property
    def marking(self) -> frozenset[bytes]:
        return frozenset(filter(_marks, self.line_set))


@dataclass(frozen=True)
class Script:
    """Commands. `own`: those that mark it, here-documents left out; `whole`: with them."""

    name: str
    own: frozenset[bytes]
    whole: frozenset[bytes]
    digests: frozenset[bytes] = frozenset()

    @property
    def is_entry(self) -> bool:
        return self.name.rpartition("/")[2] in _ENTRIES

    def found_in(self, view: View, place: str) -> str | None:
        """Why `view`, of a file at `place`, gives it away; None where it does not."""
        lines = view.line_set
        if len(self.whole) >= LINES_MIN and self.whole <= lines:
            return f"all of its {len(self.whole)} lines"
        hits = len(self.own & lines)
        alike = self.is_entry or place.rpartition("/")[2] != self.name.rpartition("/")[2]
        if len(self.own) >= LINES_MIN and hits >= max(LINES_MIN, SCRIPT_SHARE * len(self.own)) and alike:
            return f"{hits} of its {len(self.own)} own lines"
        if self.own and hits == len(self.own) and 2 * hits >= len(view.marking):
            return f"{hits} of its {hits} own lines, and little else"
        return "its digest" if any(digest in view.data for digest in self.digests) else None

    def tokens(self) -> Iterator[bytes]:
        """One of these is in every view that gives the script away: enough lines' that no share of them misses all."""
        lines = sorted(self.own, key=_token, reverse=True)
        yield from map(_token, lines[: int((1 - SCRIPT_SHARE) * len(lines)) + 1])
        yield from (_token(line) for line in sorted(self.whole - self.own)[:1] if not lines)
        yield from self.digests


@dataclass(frozen=True)
class Block:
    """Text in one piece. A program counts inside other text, too; data only whole."""

    name: str
    text: bytes
    is_program: bool

    def found_in(self, view: View) -> bool:
        if len(view.data) < len(self.text) // 2:
            return False
        return self.text in view.text if self.is_program else self.text == view.text


@dataclass(frozen=True)
class Secrets:
    scripts: tuple[Script, ...]
    blocks: tuple[Block, ...]

    @cached_property
    def tokens(self) -> tuple[bytes, ...]:
        """Quick to look for. Where none of them is, there is no secret."""
        lines = (max(block.text.split(b"\n"), key=len) for block in self.blocks)
        found = {token for script in self.scripts for token in script.tokens()}
        return tuple(sorted(found | set(map(_token, lines))))

    def may_be_in(self, data: bytes) -> bool:
        return any(token in data for token in self.tokens)


def secrets_of(files: Mapping[str, FileEntry]) -> Secrets:
    """Of the files of a task directory. Libraries that tests bring with them are none."""
    scripts: list[Script] = []
    blocks: list[Block] = []
    libraries = tuple(vendored(files))
    for name, entry in files.items():
        if not name.startswith(("tests/", "solution/")) or name.startswith(libraries):
            continue
        if not (name.endswith(_CODE) or entry.content.startswith(b"#!")):
            blocks += _data(name, entry.content)
            continue
        outer, bodies = _parts(entry.content)
        whole = frozenset(filter(_marks, View(entry.content).line_set))
        scripts.append(Script(name, frozenset(filter(_marks, View(outer).line_set)), whole, _digests(entry.content)))
        for program, body in bodies:
            blocks += _data(f"{name} (here-document)", body, is_program=program)
    return Secrets(tuple(scripts), tuple(blocks))


def vendored(files: Iterable[str]) -> set[str]:
    """Folders that hold installed Python packages."""
    return {name.split(".dist-info/")[0].rpartition("/")[0] + "/" for name in files if ".dist-info/" in name}


def _data(name: str, content: bytes, *, is_program: bool = False) -> Iterator[Block]:
    view = View(content)
    if len(view.text) >= DATA_BYTES_MIN:
        yield Block(name, view.text, is_program and len(view.marking) >= LINES_MIN)


def _parts(script: bytes) -> tuple[bytes, list[tuple[bool, bytes]]]:
    """The lines outside of here-documents, and each of these with whether it is a program."""
    outer: list[bytes] = []
    bodies: list[tuple[bool, bytes]] = []
    body: list[bytes] | None = None
    end = b""
    program = False
    for line in script.split(b"\n"):
        if body is not None:
            if line.strip() == end:
                bodies.append((program, b"\n".join(body)))
                body = None
            else:
                body.append(line)
            continue
        outer.append(line)
        if found := _HERE.search(line):
            body, end, program = [], found[2], _RUNS.search(line) is not None
    return b"\n".join([*outer, *(body or ())]), bodies


def _marks(line: bytes) -> bool:
    return len(line) >= LINE_CHARS_MIN and not _COMMON.match(line)


def _token(line: bytes) -> bytes:
    """Its longest piece without a blank: blanks may be written otherwise elsewhere."""
    return max(line.split(), key=lambda piece: (len(piece), piece), default=b"")


def _digests(content: bytes) -> frozenset[bytes]:
    blob = b"blob %d\0%s" % (len(content), content)
    made = [hashlib.new(name, content, usedforsecurity=False) for name in ("md5", "sha1", "sha256", "sha512")]
    made.append(hashlib.sha1(blob, usedforsecurity=False))
    return frozenset(each.hexdigest().encode() for each in made)
