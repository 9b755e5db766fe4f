"""What a person sees of checks: a live table of gates, a progress bar over tasks, a summary; elsewhere plain lines."""

import base64
import binascii
import sys
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from services.cli.checks.verdict import GateRecord, TaskVerdict, Word
from services.cli.outcome import say, say_table
from services.validator.gates.run import GATES

STYLES = {
    "passed": "green", "failed": "bold red", "skipped": "dim", "running": "yellow",
    "valid": "green", "invalid": "bold red", "could not check": "yellow",
}  # fmt: skip
OUTPUT_LINES = 12
"""Of what a program of the task printed, shown where a gate failed."""
WHY_CHARS_MAX = 300
"""Of the reason in the line of one among many; --out has all of it."""


def seconds(wall_s: float | None) -> str:
    return "" if wall_s is None else f"{wall_s:.2f} s"


class GateTable:
    """The gates of one task as they go by. `quiet` shows nothing."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._records: dict[str, GateRecord] = {}
        self._live: Live | None = None
        self._over = False

    def __enter__(self) -> "GateTable":
        if not self._quiet and sys.stdout.isatty():
            self._live = Live(console=Console(), refresh_per_second=4, get_renderable=self._table)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        if self._live is not None:
            self._live.stop()
            self._live = None

    def take(self, record: GateRecord) -> None:
        self._records[record.gate] = record
        if not self._quiet and self._live is None:
            row = f"{record.gate:<18} {record.outcome.value:<8} {seconds(record.wall_s):>8}  {printable(record.detail)}"
            say(row.rstrip())

    def _table(self) -> Table:
        table = Table("gate", "result", "time", "evidence")
        waiting = [gate for gate in GATES if gate.name not in self._records]
        for gate in sorted(GATES, key=lambda gate: gate.cost):
            record = self._records.get(gate.name)
            if record is not None:
                table.add_row(
                    gate.name, _styled(record.outcome.value), seconds(record.wall_s), escape(printable(record.detail))
                )
            else:
                now = not self._over and gate.cost == min(each.cost for each in waiting)
                table.add_row(gate.name, _styled("running") if now else "", "", "")
        return table


class TaskProgress:
    """Tasks as they are done. `quiet` shows nothing."""

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        self._total = total
        self._quiet = quiet
        self._counts: Counter[Word] = Counter()
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> "TaskProgress":
        if not self._quiet and sys.stdout.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=Console())
            self._task = self._bar.add_task(self._said(), total=self._total)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def take(self, verdict: TaskVerdict) -> None:
        self._counts[verdict.verdict] += 1
        if self._bar is not None:
            self._bar.update(self._task, advance=1, description=self._said())
            if verdict.verdict is not Word.valid:
                self._bar.console.print(f"{_styled(verdict.verdict.value)} {escape(_about(verdict))}")
        elif not self._quiet:
            time = "kept" if verdict.kept else seconds(verdict.wall_s)
            say(f"{verdict.verdict.value:<16} {time:>8}  {_about(verdict)}")

    def _said(self) -> str:
        return "  ".join(f"{self._counts[word]} {_styled(word.value)}" for word in Word)


def say_verdict(verdict: TaskVerdict) -> None:
    """The last words on one task: the verdict, why, and what its programs printed where a gate failed."""
    for note in verdict.notes:
        say(f"note: {printable(note)}")
    failed = verdict.failed
    for name, value in (failed.observed if failed else {}).items():
        lines = _output(name, value)
        if lines:
            say(f"{name.replace('_', ' ')}:")
            for line in lines[-OUTPUT_LINES:]:
                say(f"  {line}")
    line = printable(verdict.line())
    say(f"{verdict.verdict.value}: {verdict.env or verdict.path}" + (f"\n{line}" if line else ""))


def say_summary(verdicts: Sequence[TaskVerdict], total: int) -> None:
    """How many of each word, and by the gate that failed. Each task that is not valid had its line already."""
    counts = Counter(verdict.verdict for verdict in verdicts)
    rows = [(word.value, str(counts[word]), _by_gate(verdicts, word)) for word in Word]
    say()
    say_table(("verdict", "tasks", "by gate"), rows)
    kept = sum(verdict.kept for verdict in verdicts)
    if kept:
        say(f"{kept} were checked before and not again: --fresh checks all")
    if len(verdicts) < total:
        say(f"{total - len(verdicts)} of {total} are not checked yet: the same command goes on there")


def _by_gate(verdicts: Sequence[TaskVerdict], word: Word) -> str:
    gates = Counter(each.failed.gate if each.failed else "none" for each in verdicts if each.verdict is word)
    return "" if word is Word.valid else ", ".join(f"{gate} {count}" for gate, count in gates.most_common())


def _about(verdict: TaskVerdict) -> str:
    line = verdict.line()
    if len(line) > WHY_CHARS_MAX:
        line = line[: WHY_CHARS_MAX - 1] + "…"
    return printable(f"{verdict.task}: {line}" if line else verdict.task)


def _styled(word: str) -> str:
    return f"[{STYLES[word]}]{word}[/]" if word in STYLES else word


def _output(name: str, value: Any) -> list[str]:
    """Lines of an observed output, which is kept in base64; nothing for what is none."""
    if not name.endswith("output") or not isinstance(value, str):
        return []
    try:
        text = base64.b64decode(value, validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return []
    return [printable(line) for line in text.splitlines()]


def printable(text: str) -> str:
    """What a task says is not trusted: no escape codes reach the terminal, and a line stays a line."""
    return "".join(letter if letter.isprintable() else " " if letter in "\t\n" else "·" for letter in text)
