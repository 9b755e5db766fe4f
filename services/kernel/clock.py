"""Wall clocks: the machine's, and one that is moved by hand. Times go into meta only, never into a body or an id."""

import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    def now_ns(self) -> int:
        """Nanoseconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    def now_ns(self) -> int:
        return time.time_ns()


@dataclass
class ManualClock:
    """Stands still until it is moved."""

    at_ns: int = 0

    def now_ns(self) -> int:
        return self.at_ns

    def advance(self, ns: int) -> None:
        self.at_ns += ns
