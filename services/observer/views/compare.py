"""Two proposers side by side: rates, costs, spread and time with 95% intervals, a test, and what follows. Pure."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from services.observer.policy import wilson
from services.observer.views.answers import Answered
from services.observer.views.intervals import Interval, bonett_price, bootstrap, fisher, mcnemar, needed, newcombe

RESAMPLES = 2000
SIGNIFICANT = 0.05
BOOTSTRAP_MIN = 10
"""Of fewer assignments a bootstrap interval is too narrow to conclude from."""
WORTH_TELLING = 0.05
"""A difference of rates, or a share of the other side's value, below which a sample size is not worth planning for."""

Verdict = Literal["better", "worse", "not yet known"]
"""Of the first side against the second."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    value: float | None
    """None where there is nothing to take it from."""
    interval: Interval | None
    count: int
    """Assignments it rests on."""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    one: Estimate
    other: Estimate
    difference: float | None
    """One less the other: over the pairs where they are paired."""
    interval: Interval | None
    test: str
    p: float | None
    """Two-sided; None where the interval alone decides."""
    verdict: Verdict
    more: int | None
    """Assignments (pairs, if paired) that it takes beside the present ones to tell a difference of this size, or at
    least of WORTH_TELLING, with 80% power; None where that cannot be told."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    one: str
    other: str
    answers: tuple[int, int]
    """Assignments that each side has finished, those that infrastructure failed included."""
    pairs: int
    """Assignments that both sides answered."""
    paired: bool
    """Differences and tests are over these pairs; else over the two sides as independent samples."""
    metrics: tuple[Metric, ...]


Ratio = tuple[float, float]
"""Numerator and denominator that an assignment adds to a sum."""


def compare(
    one: str, other: str, ones: Sequence[Answered], others: Sequence[Answered], *, resamples: int = RESAMPLES
) -> Comparison:
    """Paired where at least half of the smaller side's assignments were answered by the other side too."""
    pairs = _pairs(ones, others)
    paired = bool(pairs) and 2 * len(pairs) >= min(len(ones), len(others))
    sides = _Sides(ones, others, pairs if paired else None, resamples)
    metrics = [
        sides.rate("valid rate", lambda each: each.valid),
        sides.rate("valid at first try", lambda each: each.first_valid),
        sides.rate("admission rate", lambda each: each.admitted),
    ]
    for name, pick in (("USD", _usd), ("tokens", _tokens), ("CPU seconds", _cpu_s)):
        if any(pick(each) for each in (*ones, *others)):
            metrics.append(sides.ratio(f"{name} per valid environment", _per_valid(pick), lower_is_better=True))
    metrics.append(sides.ratio("spread of rewards", lambda each: None if each.spread is None else (each.spread, 1.0)))
    metrics.append(sides.ratio("seconds of its own work", lambda each: (each.proposer_s, 1.0), lower_is_better=True))
    return Comparison(
        one=one,
        other=other,
        answers=(len(ones), len(others)),
        pairs=len(pairs),
        paired=paired,
        metrics=tuple(metrics),
    )


def sentences(comparison: Comparison) -> list[str]:
    """What follows, one sentence a metric, in words that need no table."""
    return [_sentence(comparison, metric) for metric in comparison.metrics]


def _sentence(comparison: Comparison, metric: Metric) -> str:
    one, other = comparison.one, comparison.other
    if metric.difference is None or metric.interval is None:
        return f"{metric.name}: not yet known: there is too little to compare"
    low, high = metric.interval
    seen = f"difference {metric.difference:+.3g} [{low:.3g}, {high:.3g}]"
    if metric.verdict != "not yet known":
        p = "" if metric.p is None else f", {metric.test} p = {metric.p:.2g}"
        return f"{metric.name}: {one} is {metric.verdict} than {other}: {seen}{p}"
    if metric.more is None:
        return f"{metric.name}: not yet known: {seen}"
    what = "pairs" if comparison.paired else "assignments each"
    return f"{metric.name}: not yet known: {seen}; need about {metric.more} more {what}"


def _pairs(ones: Sequence[Answered], others: Sequence[Answered]) -> list[tuple[Answered, Answered]]:
    """Answers to one and the same assignment, also of two runs that planned alike."""
    waiting: dict[tuple[int, bytes], list[Answered]] = defaultdict(list)
    for each in others:
        waiting[each.round, each.assignment].append(each)
    return [(each, found.pop(0)) for each in ones if (found := waiting[each.round, each.assignment])]


@dataclass(frozen=True)
class _Seen:
    """The difference that a verdict is about, and what it rests on."""

    difference: float | None
    interval: Interval | None
    count: int
    test: str
    p: float | None = None
    least: float = WORTH_TELLING
    """A smaller difference is not worth planning a sample for."""
    sign: int = 1
    """-1 where lower is better."""


class _Sides:
    def __init__(
        self,
        ones: Sequence[Answered],
        others: Sequence[Answered],
        pairs: list[tuple[Answered, Answered]] | None,
        resamples: int,
    ) -> None:
        self._ones, self._others, self._pairs, self._resamples = ones, others, pairs, resamples

    def rate(self, name: str, pick: Callable[[Answered], bool | None]) -> Metric:
        one, other = _rate(self._ones, pick), _rate(self._others, pick)
        difference: float | None = None
        interval: Interval | None = None
        p: float | None = None
        count = min(one.count, other.count)
        if self._pairs is not None:
            both = [
                (yes, also) for a, b in self._pairs if (yes := pick(a)) is not None and (also := pick(b)) is not None
            ]
            count, only_one = len(both), sum(yes and not also for yes, also in both)
            only_other = sum(also and not yes for yes, also in both)
            if both:
                difference, interval = (only_one - only_other) / count, bonett_price(only_one, only_other, count)
                p = mcnemar(only_one, only_other)
        elif one.value is not None and other.value is not None:
            difference, interval = one.value - other.value, newcombe(one.value, one.count, other.value, other.count)
            hits = round(one.value * one.count), round(other.value * other.count)
            p = fisher(hits[0], one.count - hits[0], hits[1], other.count - hits[1])
        test = "McNemar" if self._pairs is not None else "Fisher"
        return _metric(name, one, other, _Seen(difference, interval, count, test, p))

    def ratio(self, name: str, pick: Callable[[Answered], Ratio | None], *, lower_is_better: bool = False) -> Metric:
        """Sum of the numerators over sum of the denominators."""
        ones, others = ([ratio for each in side if (ratio := pick(each))] for side in (self._ones, self._others))
        intervals = bootstrap(_quotient, (ones, others), paired=False, resamples=self._resamples)
        one, other = (
            Estimate(value=_quotient(side), interval=interval, count=len(side))
            for side, interval in zip((ones, others), intervals, strict=False)
        )
        count, interval = min(len(ones), len(others)), intervals[-1]
        a, b = one.value, other.value
        if self._pairs is not None:
            both = [(x, y) for a, b in self._pairs if (x := pick(a)) is not None and (y := pick(b)) is not None]
            firsts, seconds = [x for x, _ in both], [y for _, y in both]
            count, a, b = len(both), _quotient(firsts), _quotient(seconds)
            interval = bootstrap(_quotient, (firsts, seconds), paired=True, resamples=self._resamples)[-1]
        difference = None if a is None or b is None else a - b
        least, sign = WORTH_TELLING * abs(b or 0.0), -1 if lower_is_better else 1
        return _metric(name, one, other, _Seen(difference, interval, count, "bootstrap", least=least, sign=sign))


def _metric(name: str, one: Estimate, other: Estimate, seen: _Seen) -> Metric:
    verdict: Verdict = "not yet known"
    more: int | None = None
    difference, interval = seen.difference, seen.interval
    if difference is not None and interval is not None:
        sure = seen.count >= BOOTSTRAP_MIN if seen.p is None else seen.p < SIGNIFICANT
        if not interval[0] <= 0 <= interval[1] and sure:
            verdict = "better" if difference * seen.sign > 0 else "worse"
        elif (whole := needed(max(abs(difference), seen.least), interval, seen.count)) is not None:
            more = max(BOOTSTRAP_MIN - seen.count, whole - seen.count, 1)
    return Metric(
        name=name,
        one=one,
        other=other,
        difference=difference,
        interval=interval,
        test=seen.test,
        p=seen.p,
        verdict=verdict,
        more=more,
    )


def _rate(side: Sequence[Answered], pick: Callable[[Answered], bool | None]) -> Estimate:
    known = [value for each in side if (value := pick(each)) is not None]
    share = sum(known) / len(known) if known else 0.0
    return Estimate(
        value=share if known else None, interval=wilson(share, len(known)) if known else None, count=len(known)
    )


def _quotient(ratios: Sequence[Ratio]) -> float | None:
    whole = sum(below for _, below in ratios)
    return sum(above for above, _ in ratios) / whole if whole else None


def _per_valid(pick: Callable[[Answered], float]) -> Callable[[Answered], Ratio | None]:
    return lambda each: None if each.valid is None else (pick(each), float(each.valid))


def _usd(each: Answered) -> float:
    return each.usd


def _tokens(each: Answered) -> float:
    return each.tokens


def _cpu_s(each: Answered) -> float:
    return each.cpu_s
