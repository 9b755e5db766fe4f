"""Words of a Dockerfile's line: blanks, quotes, `$NAME` and JSON arrays, as Docker reads them."""

import json
import re
from collections.abc import Iterator, Mapping

_VARIABLE = re.compile(
    r"\\(.)|\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?::([-+])([^}]*))?\}|(\{))", re.DOTALL
)
_PIECE = re.compile(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|((?:\\.|[^'\"\\])+)", re.DOTALL)
_WORD = re.compile(r"(?:[^\s\"'\\]|\\.|\"(?:[^\"\\]|\\.)*\"|'[^']*')+|[\"'\\]", re.DOTALL)


class QuotingError(Exception):
    """A quote without its end, or half a character."""


class VariableFormError(Exception):
    """A form of `${…}` that is not read here."""


def raw_words(line: str) -> list[str]:
    """Split at blanks outside quotes; the quotes stay."""
    found = _WORD.findall(line)
    if any(word in ('"', "'", "\\") for word in found):
        raise QuotingError("a quote is not closed")
    return found


def words(line: str, env: Mapping[str, str]) -> Iterator[str]:
    """Split at blanks outside quotes; variables substituted outside single quotes; quotes taken away."""
    for word in raw_words(line):
        yield substitute(word, env)


def substitute(word: str, env: Mapping[str, str]) -> str:
    pieces, length = [], 0
    for match in _PIECE.finditer(word):
        length += len(match[0])
        single, double, bare = match.groups()
        pieces.append(single if single is not None else expand(bare or double or "", env, quoted=bare is None))
    if length < len(word):
        raise QuotingError(f"{word[:40]!r}: a quote is not closed")
    return "".join(pieces)


def expand(text: str, env: Mapping[str, str], *, quoted: bool) -> str:
    """`$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+other}`; an unknown name is empty."""

    def value(match: re.Match[str]) -> str:
        escaped, bare, braced, form, word, other = match.groups()
        if escaped is not None:
            # Inside double quotes a backslash is itself unless it escapes something.
            return str(match[0]) if quoted and escaped not in '"$\\' else str(escaped)
        if other:
            raise VariableFormError(f"{text[:40]!r}: this form of ${{…}}")
        found = env.get(bare or braced, "")
        if form == "+":
            return str(word) if found else ""
        return found or word or ""

    return _VARIABLE.sub(value, text)


def json_form(rest: str) -> tuple[str, ...] | None:
    """Docker takes a line as a JSON array if it is one, else as plain words."""
    if not rest.startswith("["):
        return None
    try:
        found = json.loads(rest)
    except (ValueError, RecursionError):
        return None
    if not found or not all(isinstance(word, str) for word in found):
        return None
    try:
        "".join(found).encode()
    except UnicodeEncodeError as error:
        raise QuotingError("half a character: a JSON escape of a surrogate without its other half") from error
    return tuple(found)
