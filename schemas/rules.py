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


def likeness(one: str, other: str) -> float:
    """Share of equal places of two MinHash sketches (hex, 8 digits a place): an estimate of Jaccard similarity."""
    places = [one[i : i + 8] == other[i : i + 8] for i in range(0, min(len(one), len(other)), 8)]
    return sum(places) / len(places) if places else 0.0
