"""Measured figures: medians with their spread, tables, and what else must be said beside them."""

import datetime
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """A median and the range it was taken from."""

    median: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{_short(self.median)} ({_short(self.low)} to {_short(self.high)})"


class Machine(msgspec.Struct, frozen=True):
    date: str
    cores: int
    cpu: str
    kernel: str
    load_before: float
    """Of the last minute, as the kernel counts it."""


def spread(values: Iterable[float]) -> Spread:
    kept = sorted(values)
    return Spread(statistics.median(kept), kept[0], kept[-1], len(kept))


def machine() -> Machine:
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return Machine(
        date=datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        cores=len(os.sched_getaffinity(0)),
        cpu=models[0] if models else platform.machine(),
        kernel=platform.release(),
        load_before=os.getloadavg()[0],
    )


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Markdown, so that it can be pasted into docs/benchmarks.md."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
