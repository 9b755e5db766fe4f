"""File name patterns as Docker reads them: of COPY and of .dockerignore."""

import fnmatch
import posixpath
from collections.abc import Mapping, Sequence

from services.kernel.archive import FileEntry

PATTERNS_MAX = 500
_WILDCARDS = frozenset("*?[\\")
_IGNORE_FILES = ("Dockerfile.dockerignore", ".dockerignore")


class PatternError(Exception):
    """Ignore rules that are not read; says why."""


def has_wildcard(path: str) -> bool:
    return bool(_WILDCARDS & set(path))


def matches(pattern: str, path: str) -> bool:
    """`*`, `?` and `[…]` stay inside one part of a path; `**` stands for any number of parts."""
    parts = path.split("/")
    # Which beginnings of `parts` the pattern matches so far: no pattern of a stranger takes long.
    reached = {0}
    for piece in pattern.split("/"):
        if piece == "**":
            reached = set(range(min(reached), len(parts) + 1)) if reached else reached
        else:
            wanted = _translated(piece)
            reached = {at + 1 for at in reached if at < len(parts) and fnmatch.fnmatchcase(parts[at], wanted)}
    return len(parts) in reached


def expand(pattern: str, names: Mapping[str, FileEntry]) -> list[str]:
    """Files and folders that match, sorted."""
    folders = {name[:at] for name in names for at, letter in enumerate(name) if letter == "/"}
    return sorted(path for path in {*names, *folders} if matches(pattern, path))


def without_ignored(context: Mapping[str, FileEntry]) -> dict[str, FileEntry]:
    """The build context that COPY sees.

    Raises:
        PatternError: the ignore rules are not UTF-8, or too many.
    """
    found = next((name for name in _IGNORE_FILES if name in context), None)
    if found is None:
        return dict(context)
    try:
        rules = _rules(context[found].content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise PatternError(f"{found} is not UTF-8: {error}") from error
    if len(rules) > PATTERNS_MAX:
        raise PatternError(f"{found} has more than {PATTERNS_MAX} patterns")
    return {name: entry for name, entry in context.items() if not _ignored(name, rules)}


def _rules(text: str) -> list[tuple[bool, str]]:
    """Pattern after pattern, and whether it takes files back in."""
    rules = []
    for line in text.splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        back = pattern.startswith("!")
        pattern = posixpath.normpath("/" + pattern.removeprefix("!").strip()).strip("/")
        if pattern:
            rules.append((back, pattern))
    return rules


def _ignored(name: str, rules: Sequence[tuple[bool, str]]) -> bool:
    """The last rule that matches the file or a folder above it decides."""
    parts = name.split("/")
    paths = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    for back, pattern in reversed(rules):
        if any(matches(pattern, path) for path in paths):
            return not back
    return False


def _translated(piece: str) -> str:
    """Go's `[^a]` and `\\x` in the words of fnmatch."""
    said, letters = [], iter(piece)
    for letter in letters:
        if letter == "\\":
            said.append(f"[{next(letters, '')}]")
        else:
            said.append("!" if letter == "^" and said and said[-1] == "[" else letter)
    return "".join(said)
