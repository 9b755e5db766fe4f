"""What a service's answers cost, in CPU seconds of this process and of the children that it has waited for."""

import resource
import time
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
