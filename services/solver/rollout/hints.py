"""Hints for a diagnosis: which programs a reference solution uses and how it begins, never all of it."""

import re
from collections.abc import Iterator

from services.kernel.harbor.task import SOLUTION, HarborTask

PROGRAMS_MAX = 12
SHARE_MAX = 0.5
"""Of the solution's lines: what is told whole says nothing about the solver."""
_PROGRAM = re.compile(r"(?:^\s*|[|;&(]\s*)([a-z][\w.+-]*)(?=\s|$)")
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)")
_SHELL = frozenset(
    {"if", "then", "else", "elif", "fi", "for", "while", "do", "done", "case", "esac", "in", "set", "cd"}
)


def with_hints(task: HarborTask, *, bytes_max: int) -> str:
    """The instruction, and below it the programs that the solution names and its first lines, as far as they have room
    in so many bytes. Where there is nothing to tell, the instruction as it is.
    """
    entry = task.files.get(SOLUTION)
    lines = list(_commands(entry.content.decode("utf-8", "replace"))) if entry else []
    names = [name for line in lines for name in _PROGRAM.findall(line) if name not in _SHELL]
    hints = [f"It can be done with: {', '.join(list(dict.fromkeys(names))[:PROGRAMS_MAX])}"] if names else []
    hints += [f"It can begin with: {line}" for line in lines[: int(len(lines) * SHARE_MAX)]]
    told: list[str] = []
    for hint in hints:
        if len("\n".join([*told, hint]).encode()) > bytes_max:
            break
        told.append(hint)
    return task.instruction.rstrip() + "\n\n" + "\n".join(told) + "\n" if told else task.instruction


def _commands(script: str) -> Iterator[str]:
    """Lines that do something: no comments, no moves and options of the shell, no text that is fed to a program."""
    end: str | None = None
    for line in script.splitlines():
        if end is not None:
            end = None if line.strip() == end else end
            continue
        if line.strip() and not line.lstrip().startswith(("#", "set ", "cd ")):
            yield line.rstrip()
        if (found := _HEREDOC.search(line)) is not None:
            end = found[1]
