"""How a command ends, and the two ways it speaks: lines for people, JSON for programs."""

import sys
from collections.abc import Sequence
from enum import IntEnum

import msgspec


class Exit(IntEnum):
    ok = 0
    difference = 1
    """Something was checked and is not as it should be; from a service: a fault that a restart does not mend."""
    usage = 2
    infrastructure = 3
    """The machine, the server or the disk was in the way; trying again may help."""


class CliError(Exception):
    """Ends the command with one line, which says what to do."""

    def __init__(self, message: str, code: Exit = Exit.usage) -> None:
        super().__init__(message)
        self.code = code


def say(line: str = "") -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def warn(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def say_json(value: object) -> None:
    say(msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=2).decode())


def say_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Columns padded to their widest cell; nothing where there are no rows but the head."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in [head, *rows]:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
