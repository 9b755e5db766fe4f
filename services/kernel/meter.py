"""What work costs: answers, in CPU seconds of this process and its children; sandboxed programs, by who ran them."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


def _spent_s() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@dataclass
class CpuMeter:
    """Each `take` gives what was spent since the last one, so the sum is exact also when work overlaps."""

    _taken_s: float = field(default_factory=_spent_s)

    def take(self) -> float:
        spent_s = _spent_s()
        since_s, self._taken_s = spent_s - self._taken_s, spent_s
        return since_s


@dataclass(frozen=True)
class Watch:
    """When a piece of work began."""

    started_ns: int = field(default_factory=time.time_ns)
    _began_s: float = field(default_factory=time.monotonic)

    def wall_s(self) -> float:
        return time.monotonic() - self._began_s


@dataclass
class Spending:
    """CPU seconds of the sandboxed programs that were run on someone's behalf."""

    cpu_s: float = 0.0


_spending: ContextVar[Spending | None] = ContextVar("spending", default=None)


@contextmanager
def spending() -> Iterator[Spending]:
    """Adds up what is run inside the block, also by the tasks that it starts; a block around it counts it too."""
    outer = _spending.get()
    token = _spending.set(found := Spending())
    try:
        yield found
    finally:
        _spending.reset(token)
        if outer is not None:
            outer.cpu_s += found.cpu_s


def spend(cpu_s: float) -> None:
    """Says that a sandboxed program has used `cpu_s`."""
    if (found := _spending.get()) is not None:
        found.cpu_s += cpu_s
