"""The subset of Dockerfiles that runs without a container engine, parsed to typed instructions.

Taken: one FROM, RUN (shell or JSON form), COPY from the context (with --chmod), WORKDIR, ENV, USER, comments, line
continuations, quotes, and `$NAME` from earlier ENV lines as Docker substitutes it. Everything else is refused with the
instruction's line and the remark that it needs the docker backend.
"""

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from services.kernel.harbor.recipe import UnavailableError

DOCKERFILE_BYTES_MAX = 64 * 1024

_VARIABLE = re.compile(
    r"\\(.)|\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|(\{))", re.DOTALL
)
_PIECE = re.compile(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|((?:\\.|[^'\"\\])+)", re.DOTALL)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_HEREDOC = re.compile(r"(^|\s)<<-?[\"']?[A-Za-z_]")
_WILDCARDS = frozenset("*?[")


class DockerfileError(Exception):
    """The Dockerfile is wrong: no engine could build it. The message names the line."""


class NeedsDockerError(DockerfileError, UnavailableError):
    """The Dockerfile is legal but outside the subset."""


@dataclass(frozen=True)
class From:
    image: str


@dataclass(frozen=True)
class Run:
    argv: tuple[str, ...]
    """`/bin/sh -c LINE` for the shell form."""


@dataclass(frozen=True)
class Copy:
    sources: tuple[str, ...]
    """Paths in the context, normalised; "" is all of it."""
    target: str
    """Absolute, or relative to the working directory; a "/" at the end says that it is a directory."""
    mode: int | None = None


@dataclass(frozen=True)
class Workdir:
    path: str


@dataclass(frozen=True)
class Env:
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class User:
    name: str


Instruction: TypeAlias = From | Run | Copy | Workdir | Env | User


def parse(text: str) -> tuple[Instruction, ...]:
    """The instructions in order; the first is FROM.

    Raises:
        NeedsDockerError: an instruction, option or form outside the subset.
        DockerfileError: no Dockerfile at all.
    """
    if len(text.encode("utf-8", "surrogatepass")) > DOCKERFILE_BYTES_MAX:
        raise DockerfileError(f"the Dockerfile is longer than {DOCKERFILE_BYTES_MAX} bytes")
    instructions: list[Instruction] = []
    env: dict[str, str] = {}
    for number, line in _logical_lines(text):
        word, _, rest = line.partition(" ")
        try:
            instruction = _instruction(word.upper(), rest.strip(), env)
        except DockerfileError as error:
            raise type(error)(f"line {number}: {error}") from error
        if isinstance(instruction, From) == bool(instructions):
            wrong = "more than one FROM" if instructions else f"{word.upper()} before FROM"
            raise NeedsDockerError(f"line {number}: {wrong} needs the docker backend")
        if isinstance(instruction, Env):
            env |= dict(instruction.pairs)
        instructions.append(instruction)
    if not instructions:
        raise DockerfileError("the Dockerfile has no instruction")
    return tuple(instructions)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Instructions as one line each with the number of their first line, without the comments inside."""
    parts: list[str] = []
    first = 0
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if re.match(r"#\s*(escape|check)\s*=", stripped, re.IGNORECASE) and not first:
            raise NeedsDockerError(f"line {number}: a parser directive needs the docker backend")
        if not stripped or stripped.startswith("#"):
            continue
        first = first or number
        if line.rstrip(" \t").endswith("\\"):
            parts.append(line.rstrip(" \t")[:-1])
            continue
        parts.append(line)
        yield first, re.sub(r"^\s*(\S+)\s+", r"\1 ", "".join(parts)).strip()
        parts, first = [], 0
    if parts:
        yield first, re.sub(r"^\s*(\S+)\s+", r"\1 ", "".join(parts)).strip()


def _instruction(word: str, rest: str, env: Mapping[str, str]) -> Instruction:
    if word not in ("FROM", "RUN", "COPY", "WORKDIR", "ENV", "USER"):
        raise NeedsDockerError(f"{word[:20]!r} needs the docker backend (here: FROM, RUN, COPY, WORKDIR, ENV, USER)")
    if not rest:
        raise DockerfileError(f"{word} says nothing")
    if word in ("FROM", "RUN") and rest.startswith("--"):
        raise NeedsDockerError(f"{word} {rest.split()[0]} needs the docker backend")
    match word:
        case "FROM":
            return _from(rest)
        case "RUN":
            return _run(rest)
        case "COPY":
            return _copy(rest, env)
        case "ENV":
            return _env(rest, env)
        case "WORKDIR":
            return Workdir(_substitute(rest, env))
        case _:
            return User(_substitute(rest, env))


def _from(rest: str) -> From:
    words = rest.split()
    if "$" in rest or len(words) not in (1, 3) or (len(words) == 3 and words[1].upper() != "AS"):
        raise NeedsDockerError(f"FROM {rest} needs the docker backend (here: FROM NAME)")
    return From(words[0])


def _run(rest: str) -> Run:
    if _HEREDOC.search(rest):
        raise NeedsDockerError("a here-document needs the docker backend; use printf")
    argv = _json_form(rest)
    return Run(argv if argv is not None else ("/bin/sh", "-c", rest))


def _copy(rest: str, env: Mapping[str, str]) -> Copy:
    mode = None
    while rest.startswith("--"):
        option, _, rest = rest.partition(" ")
        rest = rest.lstrip()
        if not (match := re.fullmatch(r"--chmod=0?([0-7]{3})", option)):
            raise NeedsDockerError(f"COPY {option} needs the docker backend (here: --chmod=MODE)")
        mode = int(match[1], 8)
    paths = _json_form(rest) or tuple(_words(rest, env))
    if len(paths) < 2:
        raise DockerfileError("COPY needs a source and a target")
    *sources, target = paths
    if any(source.startswith("<<") or _WILDCARDS & set(source) for source in sources):
        raise NeedsDockerError("COPY with a wildcard or here-document needs the docker backend")
    if len(sources) > 1 and not target.endswith("/"):
        raise DockerfileError("COPY with several sources needs a target that ends with /")
    return Copy(tuple(map(_source, sources)), target, mode)


def _source(path: str) -> str:
    # The context is the root of sources: a leading / or .. never leaves it.
    return posixpath.normpath("/" + path).lstrip("/")


def _env(rest: str, env: Mapping[str, str]) -> Env:
    words = list(_words(rest, env))
    if "=" not in rest.split()[0]:
        name, _, value = rest.partition(" ")
        pairs = [(name, _substitute(value.strip(), env))]
    else:
        pairs = [(name, value) for name, equals, value in (word.partition("=") for word in words) if equals]
        if len(pairs) != len(words):
            raise DockerfileError("ENV wants NAME=VALUE pairs")
    for name, _ in pairs:
        if not _ENV_NAME.match(name):
            raise DockerfileError(f"ENV: {name[:40]!r} is not a variable name")
    return Env(tuple(pairs))


def _json_form(rest: str) -> tuple[str, ...] | None:
    """Docker takes a line as a JSON array if it is one, else as plain words."""
    if not rest.startswith("["):
        return None
    try:
        words = json.loads(rest)
    except (ValueError, RecursionError):
        return None
    if not words or not all(isinstance(word, str) for word in words):
        return None
    try:
        "".join(words).encode()
    except UnicodeEncodeError as error:
        raise DockerfileError("half a character: a JSON escape of a surrogate without its other half") from error
    return tuple(words)


def _words(rest: str, env: Mapping[str, str]) -> Iterator[str]:
    """Splits at blanks outside quotes; substitutes variables outside single quotes; takes quotes away."""
    for match in re.finditer(r"(?:[^\s\"'\\]|\\.|\"(?:[^\"\\]|\\.)*\"|'[^']*')+|[\"'\\]", rest, re.DOTALL):
        if match[0] in ('"', "'", "\\"):
            raise DockerfileError("a quote is not closed")
        yield _substitute(match[0], env)


def _substitute(word: str, env: Mapping[str, str]) -> str:
    pieces, length = [], 0
    for match in _PIECE.finditer(word):
        length += len(match[0])
        single, double, bare = match.groups()
        pieces.append(single if single is not None else _expand(bare or double or "", env, quoted=bare is None))
    if length < len(word):
        raise DockerfileError(f"{word[:40]!r}: a quote is not closed")
    return "".join(pieces)


def _expand(text: str, env: Mapping[str, str], *, quoted: bool) -> str:
    def value(match: re.Match[str]) -> str:
        escaped, bare, braced, default, other = match.groups()
        if escaped is not None:
            # Inside double quotes a backslash is itself unless it escapes something.
            return match[0] if quoted and escaped not in '"$\\' else escaped
        if other:
            raise NeedsDockerError(f"{text[:40]!r}: this form of ${{…}} needs the docker backend")
        return env.get(bare or braced, "") or default or ""

    return _VARIABLE.sub(value, text)
