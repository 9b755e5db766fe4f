"""Wall clocks: the machine's, and one that stands still. Times go into meta only, never into a body or an id."""

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
    """Says the time that it is set to, so that equal messages make equal records."""

    at_ns: int = 0

    def now_ns(self) -> int:
        return self.at_ns
