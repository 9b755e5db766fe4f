"""What a skill draws: one step of a task with its files, reference turns, a beginner's turns and its checks. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal, TypeAlias

from services.kernel.skills.lexicon import Names

Mode: TypeAlias = Literal[0o644, 0o755]
Said: TypeAlias = str | tuple[str, str]
"""A command line that prints nothing, or a command line and what it prints."""


@dataclass(frozen=True)
class FileSpec:
    content: bytes
    mode: Mode = 0o644
    """Harbor archives keep the executable bit only; other modes are set by a build command."""


@dataclass(frozen=True)
class Check:
    name: str
    """`<skill>__<what>`: without drawn words, so that one failure has one name in every environment."""
    expression: str
    """Bash, run in /app; true when passed. False in an untouched environment, guards included."""


@dataclass(frozen=True)
class Turn:
    command: str
    output: str
    """Exact merged stdout and stderr under bash in /app with LANG=C.UTF-8."""


@dataclass(frozen=True)
class Step:
    skill: str
    family: str
    instruction: str
    """One plain sentence that starts with a capital letter and ends with a full stop."""
    files: Mapping[str, FileSpec]
    """By path relative to /app."""
    turns: tuple[Turn, ...]
    novice: tuple[Turn, ...]
    """A typical beginner's mistake; it never earns every check."""
    checks: tuple[Check, ...]
    build: tuple[str, ...] = field(default=())
    """Offline RUN commands, in order, after the files are in place."""


@dataclass(frozen=True)
class Skill:
    name: str
    family: str
    draw: Callable[[Random, Names], Step]
    level: int = 1
    """1: one plain command; 2: options or two commands; 3: acts on what an earlier command printed; 4: twice so."""
    turns_min: int = 1


def make_step(
    skill: str,
    family: str,
    instruction: str,
    *,
    turns: Sequence[Said],
    novice: Sequence[Said],
    checks: Mapping[str, str],
    files: Mapping[str, str | FileSpec] | None = None,
    build: Sequence[str] = (),
) -> Step:
    """Names the checks after the skill and turns plain text into files and turns."""
    return Step(
        skill=skill,
        family=family,
        instruction=instruction,
        files={
            path: FileSpec(item.encode()) if isinstance(item, str) else item for path, item in (files or {}).items()
        },
        turns=tuple(_turn(said) for said in turns),
        novice=tuple(_turn(said) for said in novice),
        checks=tuple(Check(f"{skill}__{what}", expression) for what, expression in checks.items()),
        build=tuple(build),
    )


def _turn(said: Said) -> Turn:
    return Turn(said, "") if isinstance(said, str) else Turn(*said)


def mistake(rng: Random, *options: Sequence[Said]) -> Sequence[Said]:
    """One of several ways to get a step wrong."""
    return rng.choice(options)


def lines(items: Sequence[object]) -> str:
    return "".join(f"{item}\n" for item in items)


def bash_text(text: str) -> str:
    """The text as one bash word that stays on one line."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    return f"$'{escaped}'"


def same(path: str, text: str) -> str:
    """True when `path` is a regular file, no link, with exactly this text (a missing last line end is forgiven)."""
    expected = bash_text(text.removesuffix("\n"))
    return f'[ -f {path} ] && [ ! -L {path} ] && [ "$(cat {path})" = {expected} ]'


def both(outcome: str, guard: str) -> str:
    """A guard counts only together with an outcome: what holds in an untouched environment must earn nothing."""
    return f"{{ {outcome}; }} && {{ {guard}; }}"
