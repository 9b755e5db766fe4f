"""Intervals, tests and sample sizes for comparisons of two sides, on pairs or on independent samples. Pure."""

from collections.abc import Callable, Sequence
from math import comb, exp, isfinite, lgamma, sqrt
from random import Random
from typing import TypeVar

from services.observer.policy import Z_95, wilson

Interval = tuple[float, float]
T = TypeVar("T")
Z_POWER_80 = 0.8416212335729143
"""80% quantile of the normal distribution."""
SEED = 20_261_201
"""Of the bootstrap: equal data give equal intervals."""


def newcombe(one: float, ones: int, other: float, others: int) -> Interval:
    """95% interval of the difference of two independent shares (Newcombe 1998, hybrid score)."""
    (low_1, high_1), (low_2, high_2) = wilson(one, ones), wilson(other, others)
    difference = one - other
    return (
        difference - sqrt((one - low_1) ** 2 + (high_2 - other) ** 2),
        difference + sqrt((high_1 - one) ** 2 + (other - low_2) ** 2),
    )


def bonett_price(only_one: int, only_other: int, pairs: int) -> Interval:
    """95% interval of the difference of two shares over pairs, of which so many had only the one or only the other
    (Bonett and Price 2012, adjusted Wald).
    """
    first, second = (only_one + 1) / (pairs + 2), (only_other + 1) / (pairs + 2)
    spread = Z_95 * sqrt((first + second - (first - second) ** 2) / (pairs + 2))
    return max(-1.0, first - second - spread), min(1.0, first - second + spread)


def mcnemar(only_one: int, only_other: int) -> float:
    """Exact two-sided p of McNemar's test, the sign test over the pairs that differ."""
    differing, fewer = only_one + only_other, min(only_one, only_other)
    tail = sum(comb(differing, count) for count in range(fewer + 1)) / (1 << differing)
    return min(1.0, 2 * tail)


def fisher(yes: int, no: int, other_yes: int, other_no: int) -> float:
    """Two-sided p of Fisher's exact test: all tables that are no likelier than this one."""
    first, hits, whole = yes + no, yes + other_yes, yes + no + other_yes + other_no

    def log_likely(count: int) -> float:
        return _log_comb(first, count) + _log_comb(whole - first, hits - count) - _log_comb(whole, hits)

    seen = log_likely(yes)
    counts = range(max(0, hits - (whole - first)), min(first, hits) + 1)
    return min(1.0, sum(exp(each) for count in counts if (each := log_likely(count)) <= seen + 1e-9))


def bootstrap(
    statistic: Callable[[Sequence[T]], float | None], samples: Sequence[Sequence[T]], *, paired: bool, resamples: int
) -> list[Interval | None]:
    """95% percentile intervals of the statistic of each sample, and last that of the first one less the second.

    With `paired` one drawing serves all samples, which must be equally long. Resamples that have no statistic are left
    out; None where more than half of them had none.
    """
    chooser = Random(SEED)  # noqa: S311 - no secret: equal data must give equal intervals
    drawn: list[list[float]] = [[] for _ in range(len(samples) + 1)]
    for _ in range(resamples):
        places: list[int] = []
        found: list[float | None] = []
        for number, sample in enumerate(samples):
            if number == 0 or not paired:
                places = chooser.choices(range(len(sample)), k=len(sample)) if sample else []
            found.append(statistic([sample[place] for place in places]) if sample else None)
        for kept, value in zip(drawn, found, strict=False):
            if value is not None:
                kept.append(value)
        if len(found) > 1 and found[0] is not None and found[1] is not None:
            drawn[-1].append(found[0] - found[1])
    return [_percentiles(values) if 2 * len(values) > resamples else None for values in drawn]


def needed(difference: float, interval: Interval, count: int) -> int | None:
    """How many observations a side (or pairs) it takes to tell this difference from none with 80% power at the 5%
    level, if they vary like the `count` that the 95% interval rests on. None where that cannot be told.
    """
    error = (interval[1] - interval[0]) / (2 * Z_95)
    if difference == 0 or not isfinite(error) or error == 0:
        return None
    return max(count, round(count * ((Z_95 + Z_POWER_80) * error / difference) ** 2))


def _percentiles(values: list[float]) -> Interval:
    ranked = sorted(values)
    return ranked[int(0.025 * (len(ranked) - 1))], ranked[-1 - int(0.025 * (len(ranked) - 1))]


def _log_comb(whole: int, part: int) -> float:
    return lgamma(whole + 1) - lgamma(part + 1) - lgamma(whole - part + 1)
