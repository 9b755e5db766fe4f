"""`run.toml`: the `[science]` of a run and the `[deployment]` of its mesh. An error names the key and its line.

`[science]` may name a shipped profile; its tables are laid under those of the file, key by key.
"""

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from schemas.models import ModelRules
from schemas.science import Count, Natural, Positive, Science, Section
from services.kernel.options import SandboxKind

Tree = dict[str, Any]
Path = tuple[str, ...]
S = TypeVar("S", bound=msgspec.Struct)

_PLACE = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>[^`]+)`")


class Deployment(Section, frozen=True, kw_only=True):
    """The `[deployment]` table: where and how wide a run is carried out. No result depends on it."""

    name: str = ""
    """Name of the run; empty: that of the run folder."""
    folder: str = "runs"
    """Folder that new run folders are made in, from the working directory."""
    base: str = "auto"
    """`host` shows this machine's /usr to sandboxes, read-only; a folder is one that `envwheel base build` made; `auto`
    is ./bases/default where that was built, else `host`. Settled when the run starts."""
    sandbox: SandboxKind = "bubblewrap"
    """`docker`: sandboxes are containers of a Docker engine, and Dockerfiles are built by it. Needs a built base; the
    services then run as who started them, since who commands an engine can do what root can."""
    docker_host: str = ""
    """Where the engine listens, as `unix:///run/docker.sock`; empty: the engine's default place."""
    docker_runtime: str = ""
    """An OCI runtime that the engine knows, such as `runsc` (gVisor); empty: the engine's default."""
    docker_build_network: bool = False
    """Whether RUN lines of a build reach the network. Sandboxes never do."""
    docker_pull: bool = False
    """Whether images that are not in the engine may be pulled."""
    users: Literal["auto", "same"] = "auto"
    """`auto`: as root, each service gets a uid of its own; `same`: all run as who started them."""
    proposers: Count = 1
    validators: Count = 1
    solvers: Count = 1
    trainers: Count = 1
    """More than one trainer: the others stand by."""
    proposer_slots: Count = 2
    """Work messages that one proposer handles at once; the next three likewise."""
    validator_slots: Count = 2
    solver_slots: Count = 2
    in_flight_max: Count = 16
    """Unacknowledged work messages over all replicas of one role."""
    ack_wait_s: Positive = 30.0
    """How long work may go without a sign of life before another replica gets it."""
    drain_s: Annotated[float, msgspec.Meta(ge=0.0, le=3.5)] = 2.5
    """How long a service may finish running work when it is told to stop."""


ModelName = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]+$")]


class RunFile(Section, frozen=True, kw_only=True):
    """All of `run.toml`. Equal seed and science give equal rounds."""

    seed: Natural = 1
    science: Science = Science()
    models: dict[ModelName, ModelRules] = msgspec.field(default_factory=dict)
    """`[models.NAME]`: models behind endpoints that `envwheel swap` can put in, and how they are asked."""
    deployment: Deployment = Deployment()


class RunFileError(ValueError):
    """The file cannot be used; the message names the file, the line and the key."""


def read_runfile(text: str, *, where: str, profile: Callable[[str], str]) -> RunFile:
    """The settings in `text`; `profile` gives the text of a shipped profile by name, and raises KeyError for others.

    Raises:
        RunFileError: not TOML, an unknown key, a wrong type, a value out of bounds, an unknown profile.
    """
    tree = _parse(text, where)
    name = _profile_of(tree, text, where)
    if name is None:
        return _convert(tree, text, where)
    try:
        below = _parse(profile(name), f"profile {name}")
    except KeyError as error:
        raise _error(where, text, ("science", "profile"), f"there is no profile {name!r}; {error.args[0]}") from error
    _convert(tree, text, where)
    return _convert(_laid_over(below, tree), text, where)


def write_runfile(file: RunFile) -> str:
    """TOML that reads back equal, every setting written out."""
    return "\n".join(_tables(msgspec.to_builtins(file), ())).lstrip("\n") + "\n"


def first_difference(one: Science, other: Science) -> str | None:
    """The first key in which two sciences differ, with both values; None where they are equal."""
    ours, theirs = dict(_leaves(msgspec.to_builtins(one), ())), dict(_leaves(msgspec.to_builtins(other), ()))
    for key, value in ours.items():
        if theirs.get(key) != value:
            return f"science.{'.'.join(key)}: {value!r} and {theirs.get(key)!r}"
    return None


def line_of(text: str, path: Path) -> int | None:
    """Line (from 1) of the statement that gives the key at `path`, or the nearest key above it; None for no key at all.

    The statement that brings a key is found by parsing longer and longer beginnings of the text, so that strings,
    dotted keys and inline tables need no second grammar.
    """
    while path:
        whole = 0
        lines = text.splitlines()
        for count in range(1, len(lines) + 1):
            try:
                tree = tomllib.loads("\n".join(lines[:count]))
            except tomllib.TOMLDecodeError:
                continue
            if _has(tree, path):
                return whole + 1
            whole = count
        path = path[:-1]
    return None


def _parse(text: str, where: str) -> Tree:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at line (\d+)", str(error))
        line = place[1] if place else str(len(text.splitlines()))
        raise RunFileError(f"{where}:{line}: not TOML: {error}") from error


def _profile_of(tree: Tree, text: str, where: str) -> str | None:
    science = tree.get("science", {})
    name = science.get("profile") if isinstance(science, dict) else None
    if name is not None and not isinstance(name, str):
        raise _error(where, text, ("science", "profile"), "expected a string")
    return name


def _convert(tree: Tree, text: str, where: str) -> RunFile:
    for path, value in _leaves(tree, ()):
        if isinstance(value, float) and not math.isfinite(value):
            raise _error(where, text, path, "a number must be finite")
    # One by one first: an error below a table of free names does not say which of them.
    models = tree.get("models")
    for name, table in models.items() if isinstance(models, dict) else ():
        _checked(table, ModelRules, ("models", name), text, where)
    return _checked(tree, RunFile, (), text, where)


def _checked(tree: Any, kind: type[S], above: Path, text: str, where: str) -> S:
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        raise _explain(error, kind, above, text, where) from error


def _explain(error: msgspec.ValidationError, kind: type[S], above: Path, text: str, where: str) -> RunFileError:
    said = str(error)
    place = _PLACE.search(said)
    below = tuple(part for part in re.split(r"\.|\[\d+\]", place["path"] if place else "") if part)
    path = (*above, *below)
    what = _PLACE.sub("", said)
    unknown = _UNKNOWN.search(what)
    if unknown is None:
        return _error(where, text, path, what[0].lower() + what[1:])
    known = _known_keys(kind, below)
    near = difflib.get_close_matches(unknown["key"], known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
    return _error(where, text, (*path, unknown["key"]), f"unknown key; {hint}")


def _known_keys(kind: type[msgspec.Struct], path: Path) -> list[str]:
    for part in path:
        kind = next(field.type for field in msgspec.structs.fields(kind) if field.encode_name == part)
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def _error(where: str, text: str, path: Path, what: str) -> RunFileError:
    line = line_of(text, path)
    return RunFileError(f"{where}{f':{line}' if line else ''}: {'.'.join(path) or 'run.toml'}: {what}")


def _has(tree: Mapping[str, Any], path: Path) -> bool:
    found: Any = tree
    for part in path:
        if not isinstance(found, Mapping) or part not in found:
            return False
        found = found[part]
    return True


def _leaves(tree: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _laid_over(below: Tree, above: Tree) -> Tree:
    laid = dict(below)
    for key, value in above.items():
        under = laid.get(key)
        laid[key] = _laid_over(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return laid


def _tables(tree: Tree, path: Path) -> Iterator[str]:
    if path:
        yield f"\n[{'.'.join(map(_key, path))}]"
    for key, value in tree.items():
        if not isinstance(value, dict) and value is not None:
            yield f"{_key(key)} = {_value(value)}"
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _tables(value, (*path, key))


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _value(key)


def _value(value: str | float | list[Any] | tuple[Any, ...]) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        # A TOML basic string takes JSON's escapes.
        return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)
