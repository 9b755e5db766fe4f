"""A Dockerfile for the engine's own builder, which knows no here-documents, modes or cache mounts: said in older words.

What is sent has three parts: the Dockerfile; `context`, where sources of COPY and ADD are looked for; and `rooms`, for
files that the Dockerfile holds in itself or wants with another mode. FROM names can be replaced, and those that have to
be in the engine beforehand are told.
"""

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.kernel.archive import FileEntry
from services.kernel.harbor.dockerfile import SHELL, DockerfileError, Document, interpreter, is_document, logical_lines
from services.kernel.harbor.patterns import expand, has_wildcard
from services.kernel.harbor.quoting import QuotingError, VariableFormError, json_form, raw_words, substitute, words
from services.kernel.harbor.quoting import expand as expand_variables
from services.kernel.harbor.recipe import UnavailableError

CONTEXT, ROOMS = "context", "rooms"
_SCRATCH = "scratch"
_ADDRESS = re.compile(r"['\"]?([a-z]+://|git@)")
_OPTION = re.compile(r"--([a-z-]+)(?:=(\S*))?(?:\s+|\Z)")


@dataclass(frozen=True)
class Member:
    """A file of the build context, with its mode."""

    content: bytes
    mode: int


@dataclass
class Translated:
    """What goes to the engine."""

    text: str
    images: tuple[str, ...]
    """Names that FROM and COPY --from use, after replacement; they must be in the engine."""
    members: dict[str, Member]


def translate(text: str, context: Mapping[str, FileEntry], replaced: Mapping[str, str]) -> Translated:
    """`replaced`: other names for the images of FROM.

    Raises:
        DockerfileError: a here-document or a quote without its end.
        UnavailableError: an option that the engine's own builder does not have.
    """
    work = _Work(context, replaced)
    for name, entry in context.items():
        work.members[f"{CONTEXT}/{name}"] = Member(entry.content, 0o755 if entry.executable else 0o644)
    lines = []
    for number, line, documents in logical_lines(text):
        word, _, rest = line.partition(" ")
        try:
            lines.append(work.line(word.upper(), rest.strip(), line, documents))
        except (QuotingError, VariableFormError) as error:
            raise DockerfileError(f"line {number}: {error}") from error
        except DockerfileError as error:
            raise type(error)(f"line {number}: {error}") from error
    written = "\n".join(lines) + "\n"
    work.members["Dockerfile"] = Member(written.encode(), 0o644)
    return Translated(written, tuple(dict.fromkeys(work.images)), work.members)


@dataclass
class _Work:
    context: Mapping[str, FileEntry]
    replaced: Mapping[str, str]
    members: dict[str, Member] = field(default_factory=dict)
    images: list[str] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)
    args: dict[str, str] = field(default_factory=dict)
    """Of before the first FROM."""
    env: dict[str, str] = field(default_factory=dict)
    shell: tuple[str, ...] = SHELL

    def line(self, word: str, rest: str, line: str, documents: Sequence[Document]) -> str:
        match word:
            case "FROM":
                return self._from(rest)
            case "ARG" if not self.stages and len(raw_words(rest)) == 1:
                name, _, value = rest.partition("=")
                self.args[name] = substitute(value, self.args)
            case "ENV" if "=" in rest:
                pairs = (each.partition("=") for each in words(rest, self.env))
                self.env |= {name: value for name, _, value in pairs}
            case "SHELL":
                self.shell = json_form(rest) or self.shell
            case "RUN":
                return self._run(rest, line, documents)
            case "COPY" | "ADD":
                return self._copy(word, rest, documents)
        return line

    def _from(self, rest: str) -> str:
        found = list(words(rest, self.args))
        place = next((at for at, each in enumerate(found) if not each.startswith("--")), len(found) - 1)
        name = found[place]
        if name not in self.stages and name != _SCRATCH:
            found[place] = self.replaced.get(name, name)
            self.images.append(found[place])
        self.stages.append(found[-1] if len(found) > place + 2 else str(len(self.stages)))
        self.shell = SHELL
        return "FROM " + " ".join(found)

    def _run(self, rest: str, line: str, documents: Sequence[Document]) -> str:
        options, rest = _options(rest)
        for name, value in options:
            # A cache mount changes what a build costs, not what it makes.
            if not (name == "mount" and "type=cache" in value.split(",")) and (name, value) != ("network", "none"):
                raise UnavailableError(f"RUN --{name}={value} needs BuildKit, which is not used here")
        if not documents:
            return f"RUN {rest}" if options else line
        if len(documents) == 1 and is_document(rest):
            return "RUN " + json.dumps([*interpreter(documents[0].text, self.shell), documents[0].text])
        whole = "\n".join([rest, *(document.raw for document in documents)])
        return "RUN " + json.dumps([*self.shell, whole])

    def _copy(self, word: str, rest: str, documents: Sequence[Document]) -> str:
        options, rest = _options(rest)
        said = dict(options)
        stage, mode = said.get("from"), said.pop("chmod", None)
        said.pop("link", None)
        for name in said:
            if name not in ("from", "chown"):
                raise UnavailableError(f"{word} --{name} needs BuildKit, which is not used here")
        if mode is not None and (stage is not None or not re.fullmatch(r"[0-7]{3,4}", mode)):
            raise UnavailableError(f"{word} --chmod={mode} in this form needs BuildKit, which is not used here")
        if stage is not None:
            if stage not in self.stages and not stage.isdigit():
                said["from"] = self.replaced.get(stage, stage)
                self.images.append(said["from"])
            return f"{word} {_joined(said)}{rest}"
        bits = int(mode, 8) if mode else None
        in_json = json_form(rest)
        *sources, target = in_json or raw_words(rest)
        placed = [self._source(source, bits) for source in sources if not is_document(source)]
        placed += [self._written(document, bits) for document in documents]
        paths = json.dumps([*placed, target]) if in_json else " ".join([*placed, target])
        return f"{word} {_joined(said)}{paths}"

    def _source(self, source: str, mode: int | None) -> str:
        """Where the source lies in what is sent; with a mode that is a copy of it."""
        if mode is None:
            return source if _ADDRESS.match(source) else f"{CONTEXT}/{source}"
        path = substitute(source, self.env).lstrip("/")
        path = path if has_wildcard(path) else posixpath.normpath("/" + path).lstrip("/")
        room = f"{ROOMS}/{len(self.members)}"
        found = expand(path, self.context) if has_wildcard(path) else [path]
        for name in self.context:
            above = next((each for each in found if not each or name == each or name.startswith(each + "/")), None)
            if above is not None:
                kept = name if not above else posixpath.basename(above) + name[len(above) :]
                self.members[f"{room}/{kept}"] = Member(self.context[name].content, mode)
        return f"{room}/{posixpath.basename(path)}".rstrip("/")

    def _written(self, document: Document, mode: int | None) -> str:
        text = document.text if document.quoted else expand_variables(document.text, self.env, quoted=True)
        path = f"{ROOMS}/{len(self.members)}/{document.name}"
        self.members[path] = Member(text.encode(), 0o644 if mode is None else mode)
        return path


def _options(rest: str) -> tuple[list[tuple[str, str]], str]:
    """Leading `--name=value`, and the rest."""
    found = []
    while match := _OPTION.match(rest):
        found.append((match[1], match[2] or ""))
        rest = rest[match.end() :]
    return found, rest


def _joined(options: Mapping[str, str]) -> str:
    return "".join(f"--{name}={value} " for name, value in options.items())
