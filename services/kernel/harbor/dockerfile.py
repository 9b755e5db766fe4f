"""The subset of Dockerfiles that runs without a container engine, parsed to typed instructions.

Taken: one FROM, ARG, RUN (shell or JSON form, here-documents), COPY and ADD from the context (with --chmod, --chown,
wildcards, here-documents), WORKDIR, ENV, USER, SHELL, comments, line continuations, quotes, and `$NAME` as Docker
substitutes it. What says nothing of the files or of how commands run (LABEL, EXPOSE, CMD, ENTRYPOINT, …) is passed
over: a sandbox starts its own program. Everything else is refused with its line and the remark that it needs the docker
backend.
"""

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from services.kernel.harbor.patterns import has_wildcard
from services.kernel.harbor.quoting import (
    QuotingError,
    VariableFormError,
    expand,
    json_form,
    raw_words,
    substitute,
    words,
)
from services.kernel.harbor.recipe import UnavailableError

DOCKERFILE_BYTES_MAX = 64 * 1024
SHELL = ("/bin/sh", "-c")
PASSED_OVER = frozenset(
    {"LABEL", "EXPOSE", "CMD", "ENTRYPOINT", "STOPSIGNAL", "HEALTHCHECK", "MAINTAINER", "VOLUME", "ONBUILD"}
)
TAKEN = ("FROM", "ARG", "RUN", "COPY", "ADD", "WORKDIR", "ENV", "USER", "SHELL")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_HEREDOC = re.compile(r"[0-9]*<<(-?)([\"']?)([A-Za-z_][A-Za-z0-9_.]*)\2\Z")
_TAKES_DASH_C = frozenset({"sh", "bash", "dash", "python", "python3"})


class DockerfileError(Exception):
    """The Dockerfile is wrong: no engine could build it. The message names the line."""


class NeedsDockerError(DockerfileError, UnavailableError):
    """The Dockerfile is legal but outside the subset."""


@dataclass(frozen=True)
class From:
    image: str


@dataclass(frozen=True)
class Arg:
    """A variable of the build alone, with the value that it has here."""

    name: str
    value: str


@dataclass(frozen=True)
class Run:
    argv: tuple[str, ...]
    """`/bin/sh -c LINE` for the shell form."""


@dataclass(frozen=True)
class Copy:
    sources: tuple[str, ...]
    """Paths or patterns in the context, normalised; "" is all of it."""
    target: str
    """Absolute, or relative to the working directory; a "/" at the end says that it is a directory."""
    mode: int | None = None
    inline: tuple[tuple[str, str], ...] = ()
    """Files written out in the Dockerfile: name and text."""
    unpacks: bool = False
    """ADD: an archive among the sources would be unpacked."""


@dataclass(frozen=True)
class Workdir:
    path: str


@dataclass(frozen=True)
class Env:
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class User:
    name: str


Instruction: TypeAlias = From | Arg | Run | Copy | Workdir | Env | User


@dataclass(frozen=True)
class Document:
    """A here-document."""

    name: str
    quoted: bool
    text: str
    raw: str
    """With its last line, as a shell wants it."""


@dataclass
class _State:
    """What later lines see of earlier ones."""

    env: dict[str, str] = field(default_factory=dict)
    args: dict[str, str] = field(default_factory=dict)
    before_from: dict[str, str] = field(default_factory=dict)
    shell: tuple[str, ...] = SHELL

    @property
    def seen(self) -> dict[str, str]:
        return self.args | self.env


def parse(text: str, base_env: Mapping[str, str] = MappingProxyType({})) -> tuple[Instruction, ...]:
    """The instructions in order; the first is FROM. `base_env`: the variables that the image of FROM comes with.

    Raises:
        NeedsDockerError: an instruction, option or form outside the subset.
        DockerfileError: no Dockerfile at all.
    """
    if len(text.encode("utf-8", "surrogatepass")) > DOCKERFILE_BYTES_MAX:
        raise DockerfileError(f"the Dockerfile is longer than {DOCKERFILE_BYTES_MAX} bytes")
    found: list[Instruction] = []
    state = _State(dict(base_env))
    for number, line, documents in logical_lines(text):
        word, _, rest = line.partition(" ")
        try:
            instruction = _instruction(word.upper(), rest.strip(), documents, state, first=not found)
        except (QuotingError, VariableFormError) as error:
            kind = DockerfileError if isinstance(error, QuotingError) else NeedsDockerError
            needs = "" if kind is DockerfileError else " needs the docker backend"
            raise kind(f"line {number}: {error}{needs}") from error
        except DockerfileError as error:
            raise type(error)(f"line {number}: {error}") from error
        if instruction is not None:
            found.append(instruction)
    if not found:
        raise DockerfileError("the Dockerfile has no instruction")
    return tuple(found)


def logical_lines(text: str) -> Iterator[tuple[int, str, tuple[Document, ...]]]:
    """Instructions as one line each with the number of their first line, without the comments inside, and with the
    here-documents that follow.
    """
    parts: list[str] = []
    first = 0
    lines = iter(enumerate(text.split("\n"), 1))
    for number, line in lines:
        stripped = line.strip()
        if re.match(r"#\s*escape\s*=\s*`", stripped, re.IGNORECASE) and not first:
            raise DockerfileError(f"line {number}: another escape character than \\ is not read here")
        if not stripped or stripped.startswith("#"):
            continue
        first = first or number
        if line.rstrip(" \t").endswith("\\"):
            parts.append(line.rstrip(" \t")[:-1])
            continue
        whole = re.sub(r"^\s*(\S+)\s+", r"\1 ", "".join([*parts, line])).strip()
        yield first, whole, tuple(_documents(whole, lines, first))
        parts, first = [], 0
    if parts:
        yield first, re.sub(r"^\s*(\S+)\s+", r"\1 ", "".join(parts)).strip(), ()


def _documents(line: str, lines: Iterator[tuple[int, str]], first: int) -> Iterator[Document]:
    word, _, rest = line.partition(" ")
    if word.upper() not in ("RUN", "COPY", "ADD") or "<<" not in rest:
        return
    try:
        marks = [match for each in raw_words(rest) if (match := _HEREDOC.match(each))]
    except QuotingError:
        return
    for mark in marks:
        body: list[str] = []
        raw: list[str] = []
        for _, line in lines:
            raw.append(line)
            text = line.lstrip("\t") if mark[1] else line
            if text == mark[3]:
                break
            body.append(text + "\n")
        else:
            raise DockerfileError(f"line {first}: the here-document {mark[3]} has no end")
        yield Document(mark[3], bool(mark[2]), "".join(body), "\n".join(raw))


def _instruction(
    word: str, rest: str, documents: tuple[Document, ...], state: _State, *, first: bool
) -> Instruction | None:
    if word not in (*TAKEN, *PASSED_OVER):
        raise NeedsDockerError(f"{word[:20]!r} needs the docker backend (bubblewrap takes {', '.join(TAKEN)})")
    if not rest:
        raise DockerfileError(f"{word} says nothing")
    if word == "ARG":
        return _arg(rest, state, first=first)
    if first != (word == "FROM"):
        raise NeedsDockerError(f"{f'{word} before FROM' if first else 'more than one FROM'} needs the docker backend")
    match word:
        case "FROM":
            return _from(rest, state)
        case "RUN":
            return _run(rest, documents, state)
        case "COPY" | "ADD":
            return _copy(word, rest, documents, state.seen)
        case "ENV":
            pairs = _env(rest, state.seen)
            state.env |= dict(pairs)
            return Env(pairs)
        case "WORKDIR":
            return Workdir(substitute(rest, state.seen))
        case "USER":
            return User(substitute(rest, state.seen))
        case "SHELL":
            shell = json_form(rest)
            if shell is None:
                raise DockerfileError("SHELL wants a JSON array")
            state.shell = shell
    return None


def _arg(rest: str, state: _State, *, first: bool) -> Arg | None:
    name, equals, value = rest.partition("=")
    if not _NAME.match(name) or len(raw_words(rest)) != 1:
        raise NeedsDockerError(f"ARG {rest[:40]} needs the docker backend (bubblewrap takes ARG NAME=VALUE)")
    if first:
        state.before_from[name] = substitute(value, state.before_from)
        return None
    if not equals and name not in state.before_from:
        return None
    state.args[name] = substitute(value, state.seen) if equals else state.before_from[name]
    return Arg(name, state.args[name])


def _from(rest: str, state: _State) -> From:
    # The base is one for all: which platform it has is not the Dockerfile's choice here.
    found = [word for word in words(rest, state.before_from) if not word.startswith("--platform=")]
    if len(found) not in (1, 3) or (len(found) == 3 and found[1].upper() != "AS") or not found[0]:
        raise NeedsDockerError(f"FROM {rest} needs the docker backend (bubblewrap takes FROM NAME)")
    return From(found[0])


def _run(rest: str, documents: tuple[Document, ...], state: _State) -> Run:
    if rest.startswith("--"):
        raise NeedsDockerError(f"RUN {rest.split()[0]} needs the docker backend")
    argv = json_form(rest)
    if argv is not None:
        return Run(argv)
    if len(documents) == 1 and is_document(rest):
        return Run((*interpreter(documents[0].text, state.shell), documents[0].text))
    return Run((*state.shell, "\n".join([rest, *(document.raw for document in documents)])))


def interpreter(text: str, shell: tuple[str, ...]) -> tuple[str, ...]:
    """A here-document alone is a script: run by what its first line names."""
    if not text.startswith("#!"):
        return shell
    try:
        said = tuple(shlex.split(text[2:].partition("\n")[0]))
    except ValueError as error:
        raise DockerfileError(f"the first line of the here-document: {error}") from error
    if not said or posixpath.basename(said[-1]) not in _TAKES_DASH_C:
        raise NeedsDockerError("a here-document for this interpreter needs the docker backend")
    return (*said, "-c")


def is_document(word: str) -> bool:
    """The mark of a here-document, and nothing else."""
    return bool(_HEREDOC.match(word))


def _copy(word: str, rest: str, documents: tuple[Document, ...], env: Mapping[str, str]) -> Copy:
    mode = None
    while rest.startswith("--"):
        option, _, rest = rest.partition(" ")
        rest = rest.lstrip()
        if match := re.fullmatch(r"--chmod=0?([0-7]{3})", option):
            mode = int(match[1], 8)
        elif not option.startswith("--chown=") and option not in ("--link", "--link=true"):
            # An owner has no meaning here: all files of a sandbox belong to its one user.
            raise NeedsDockerError(
                f"{word} {option} needs the docker backend (bubblewrap takes --chmod=MODE, --chown and --link)"
            )
    paths = json_form(rest) or tuple(words(rest, env))
    if len(paths) < 2:
        raise DockerfileError(f"{word} needs a source and a target")
    *sources, target = paths
    inline = tuple(
        (document.name, document.text if document.quoted else expand(document.text, env, quoted=True))
        for document in documents
    )
    sources = [source for source in sources if not (documents and is_document(source))]
    if word == "ADD" and any(re.match(r"[a-z]+://|git@", source) for source in sources):
        raise NeedsDockerError("ADD of an address asks for the network: it needs the docker backend with build_network")
    if len(sources) + len(inline) > 1 and not target.endswith(("/", "/.")) and target != ".":
        raise DockerfileError(f"{word} with several sources needs a target that ends with /")
    return Copy(tuple(map(_source, sources)), target, mode, inline, word == "ADD")


def _source(path: str) -> str:
    # The context is the root of sources: a leading / or .. never leaves it.
    return path.lstrip("/") if has_wildcard(path) else posixpath.normpath("/" + path).lstrip("/")


def _env(rest: str, env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found = list(words(rest, env))
    if "=" not in rest.split()[0]:
        name, _, value = rest.partition(" ")
        pairs = [(name, substitute(value.strip(), env))]
    else:
        pairs = [(name, value) for name, equals, value in (word.partition("=") for word in found) if equals]
        if len(pairs) != len(found):
            raise DockerfileError("ENV wants NAME=VALUE pairs")
    for name, _ in pairs:
        if not _NAME.match(name):
            raise DockerfileError(f"ENV: {name[:40]!r} is not a variable name")
    return tuple(pairs)
