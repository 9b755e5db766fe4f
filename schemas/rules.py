"""Pure rules that more than one service applies: means, calibration, groups, likeness."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil, sqrt

from schemas.outcomes import Calibration
from schemas.science import CalibrationRules


def mean_std(rewards: Sequence[float]) -> tuple[float, float]:
    """Mean and population standard deviation. No rewards: (0, 0)."""
    if not rewards:
        return 0.0, 0.0
    mean = sum(rewards) / len(rewards)
    return mean, sqrt(sum((reward - mean) ** 2 for reward in rewards) / len(rewards))


def enough(unmasked: int, attempts: int) -> bool:
    """May a group with masked members be used? At least half of it, and 2, must remain."""
    return unmasked >= max(2, ceil(attempts / 2))


def near_edge(mean: float, rules: CalibrationRules) -> bool:
    """Is the mean so close to an edge of the band that more attempts are asked for?"""
    return min(abs(mean - rules.mean_min), abs(mean - rules.mean_max)) <= rules.edge


def calibration_outcome(rewards: Sequence[float], attempts: int, rules: CalibrationRules) -> Calibration:
    """Paper: admitted with the mean in the band and enough spread; the spread is what a group learns from."""
    if not enough(len(rewards), attempts):
        return Calibration.infra_failed
    mean, std = mean_std(rewards)
    if mean > rules.mean_max:
        return Calibration.too_easy
    if mean < rules.mean_min:
        return Calibration.too_hard
    return Calibration.admitted if std >= rules.std_min else Calibration.flat


def commonest_failure(tests: Iterable[dict[str, bool]]) -> str | None:
    """Name of the test that failed most often; of equals the first by name. None where nothing failed."""
    failures = Counter(name for results in tests for name, passed in results.items() if not passed)
    return min(failures, key=lambda name: (-failures[name], name)) if failures else None


SKETCH_PARTS = ("instruction", "fixtures", "solution", "tests")
SKETCH_PLACES = 64
"""MinHash functions of one part: the standard error of its estimate is at most 1 / (2 * sqrt(64))."""
SKETCH_DIGITS = 4
"""Hex digits of one place."""
_PART_CHARS = SKETCH_PLACES * SKETCH_DIGITS
_EMPTY = "f" * _PART_CHARS


def likeness(one: str, other: str) -> float:
    """How alike two environments are by their sketches, in [0, 1].

    The mean over the parts that at least one of them has of an estimate of Jaccard similarity; or, where both have
    fixtures, that of the parts without the instruction, if it is more: in other words it is the same task. Sketches of
    another size are those of older logs, one part of 8 hex digits a place; of two sizes nothing can be said: 0.
    """
    if len(one) != len(SKETCH_PARTS) * _PART_CHARS or len(one) != len(other):
        return _share(one, other, 8) if len(one) == len(other) else 0.0
    found: dict[str, float] = {}
    for number, part in enumerate(SKETCH_PARTS):
        ours, theirs = (sketch[number * _PART_CHARS : (number + 1) * _PART_CHARS] for sketch in (one, other))
        if ours != _EMPTY or theirs != _EMPTY:
            found[part] = 0.0 if _EMPTY in (ours, theirs) else _share(ours, theirs, SKETCH_DIGITS)
    unworded = [share for part, share in found.items() if part != "instruction"]
    means = [sum(shares) / len(shares) for shares in (list(found.values()), unworded) if shares]
    return max(means if "fixtures" in found else means[:1], default=1.0)


def _share(one: str, other: str, digits: int) -> float:
    places = [one[i : i + digits] == other[i : i + digits] for i in range(0, min(len(one), len(other)), digits)]
    return sum(places) / len(places) if places else 0.0
