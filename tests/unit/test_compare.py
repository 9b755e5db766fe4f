"""Comparisons of proposers: the better one is found, the interval covers what is true, and doubt is said as doubt."""

from dataclasses import dataclass, field
from functools import cache

import msgspec
import pytest

from schemas.messages import EnvProposed, EnvRequested, EnvValidated, Message, RosterChanged
from schemas.outcomes import Role, Verdict
from schemas.parked import infra_answers
from schemas.parts import RosterEntry
from schemas.science import CalibrationRules, PoolRules, ProposalRules, TrainingRules
from services.observer.views.answers import Answered, answered, of_entry
from services.observer.views.compare import Comparison, Metric, compare, sentences
from services.observer.views.intervals import bonett_price, bootstrap, fisher, mcnemar, needed, newcombe
from tests.support.script import Script, chance
from tests.support.wheel import Wheel, opening, small_science

RUNS = 200
HARDNESS = 0.15


@dataclass(frozen=True)
class Qualities(Script):
    """Entries with known valid rates, on assignments of which every second one is harder for whoever gets it."""

    rates: dict[str, float] = field(default_factory=dict)
    run_seed: int = 0
    infra_share: float = 0.0

    def answer(self, work: Message) -> list[Message]:
        if isinstance(work, EnvRequested) and chance("infra", work.assignment.seed, work.entry.name) < self.infra_share:
            return infra_answers(work)
        return [
            self._judged(work, each) if isinstance(each, EnvValidated) and isinstance(work, EnvProposed) else each
            for each in super().answer(work)
        ]

    def _judged(self, work: EnvProposed, verdict: EnvValidated) -> EnvValidated:
        harder = chance("hard", self.run_seed, work.round, work.slot // 2) < 0.5
        rate = self.rates[work.entry.name] + (-HARDNESS if harder else HARDNESS)
        good = chance("draw", work.env) < rate
        return msgspec.structs.replace(verdict, verdict=Verdict.valid if good else Verdict.invalid)


def answers_of(
    seed: int, rates: dict[str, float], *, revisions_max: int = 0, infra_share: float = 0.0
) -> list[Answered]:
    """A run of one round and 64 slots, as its log tells it."""
    science = small_science(
        rounds=1,
        proposal=ProposalRules(open_max=64, revisions_max=revisions_max, paired=True),
        calibration=CalibrationRules(attempts=2, edge=0.0),
        pool=PoolRules(target=64, admit_per_round=64, waves_max=1),
        training=TrainingRules(updates_per_round=0, groups=1, attempts=2),
    )
    entries = tuple(RosterEntry(name=name, model=name, share=0.5) for name in rates)
    start, _ = opening(seed, science)
    script = Qualities(abandoned_share=0.0, rates=rates, run_seed=seed, infra_share=infra_share)
    return answered(Wheel(script=script).turn([start, RosterChanged(ordinal=0, role=Role.proposer, entries=entries)]))


def compared(answers: list[Answered], resamples: int = 20) -> Comparison:
    return compare("a", "b", of_entry(answers, "a"), of_entry(answers, "b"), resamples=resamples)


def metric(comparison: Comparison, name: str = "valid rate") -> Metric:
    return next(each for each in comparison.metrics if each.name == name)


def independent(seed: int, rates: dict[str, float]) -> list[Answered]:
    """As many answers, each to an assignment of its own."""
    return [
        Answered(
            0,
            slot,
            str((name, slot)).encode(),
            [RosterEntry(name=name, model=name)],
            valid=chance("valid", seed, name, slot) < rate,
        )
        for name, rate in rates.items()
        for slot in range(32)
    ]


@cache
def simulated(paired: bool) -> tuple[Metric, ...]:
    """The better one, a, makes valid environments of 0.75 of its assignments, b of 0.4."""
    make = answers_of if paired else independent
    return tuple(metric(compared(make(seed, {"a": 0.75, "b": 0.4}))) for seed in range(RUNS))


@pytest.mark.parametrize("paired", [True, False])
def test_the_interval_covers_the_true_difference_in_at_least_92_of_100_runs(paired: bool) -> None:
    found = simulated(paired)
    assert {each.test for each in found} == {"McNemar" if paired else "Fisher"}
    covering = [each for each in found if each.interval and each.interval[0] <= 0.35 <= each.interval[1]]
    assert len(covering) >= 0.92 * RUNS
    widths = [each.interval[1] - each.interval[0] for each in found if each.interval]
    assert max(widths) < 0.6, "an interval that covers all says nothing"


@pytest.mark.parametrize("paired", [True, False])
def test_the_better_one_is_found_and_the_worse_one_never_called_better(paired: bool) -> None:
    verdicts = [each.verdict for each in simulated(paired)]
    assert verdicts.count("better") >= 0.7 * RUNS
    assert verdicts.count("worse") == 0


def test_of_two_equal_ones_hardly_any_comparison_says_that_one_is_better() -> None:
    verdicts = [metric(compared(independent(seed, {"a": 0.6, "b": 0.6}))).verdict for seed in range(RUNS)]
    assert verdicts.count("not yet known") >= 0.92 * RUNS


def test_what_infrastructure_failed_is_in_no_rate_and_in_no_cost_of_a_valid_environment() -> None:
    answers = answers_of(3, {"a": 0.8, "b": 0.5}, infra_share=0.2)
    lost = [each for each in answers if each.valid is None]
    assert len(lost) > 4
    found = compared(answers)
    known = {name: [each for each in of_entry(answers, name) if each.valid is not None] for name in "ab"}
    for name, estimate in (("a", metric(found).one), ("b", metric(found).other)):
        assert estimate.count == len(known[name]) < len(of_entry(answers, name))
        assert estimate.value == sum(bool(each.valid) for each in known[name]) / estimate.count
    tokens = metric(found, "tokens per valid environment").one
    spent, valid = sum(each.tokens for each in known["a"]), sum(bool(each.valid) for each in known["a"])
    assert tokens.value == pytest.approx(spent / valid)


def test_model_failures_are_kept_and_a_revision_may_make_good_what_the_first_try_did_not() -> None:
    answers = answers_of(4, {"a": 0.5, "b": 0.4}, revisions_max=2)
    assert any(not each.first_valid and each.valid for each in answers)
    assert all(len({entry.name for entry in each.entries}) == 1 for each in answers)
    found = compared(answers)
    first, whole = metric(found, "valid at first try"), metric(found)
    assert first.one.value is not None
    assert whole.one.value is not None
    assert first.one.value < whole.one.value
    assert whole.one.count == 32


def test_what_two_entries_answered_in_turn_is_nobodys() -> None:
    a, b = (RosterEntry(name=name, model=name) for name in "ab")
    prompt = RosterEntry(name="a", model="a", arm="prompt")
    answers = [Answered(0, slot, b"", entries) for slot, entries in enumerate(([a, a], [a, b], [b], [prompt], []))]
    assert [each.slot for each in of_entry(answers, "a")] == [0, 3]
    assert [each.slot for each in of_entry(answers, "a/prompt")] == [3]
    assert [each.slot for each in of_entry(answers, "b")] == [2]
    assert of_entry(answers, "a/prompt+feedback") == []


def test_the_sentence_says_better_worse_or_how_many_more_it_takes() -> None:
    answers = answers_of(1, {"a": 0.85, "b": 0.2})
    clear = compared(answers)
    mirrored = compare("b", "a", of_entry(answers, "b"), of_entry(answers, "a"), resamples=20)
    assert sentences(clear)[0].startswith("valid rate: a is better than b: difference +0.")
    assert sentences(mirrored)[0].startswith("valid rate: b is worse than a: difference -0.")
    close = compared(answers_of(1, {"a": 0.62, "b": 0.58}))
    assert metric(close).more is not None
    assert f"not yet known: difference {metric(close).difference:+.3g}" in sentences(close)[0]
    assert sentences(close)[0].endswith(f"need about {metric(close).more} more pairs")


def test_lower_costs_are_better_ones() -> None:
    cheap = [Answered(0, slot, str(slot).encode(), valid=True, tokens=100 + slot % 3) for slot in range(20)]
    dear = [Answered(0, slot, str(slot).encode(), valid=True, tokens=300 + slot % 5) for slot in range(20)]
    found = compare("a", "b", cheap, dear)
    assert found.pairs == 20
    assert metric(found, "tokens per valid environment").verdict == "better"
    assert metric(found, "valid rate").verdict == "not yet known"


def test_of_a_few_assignments_no_bootstrap_concludes_anything() -> None:
    cheap, dear = (
        [Answered(0, n, str(n).encode(), valid=True, tokens=t * (n + 9)) for n in range(4)] for t in (10, 30)
    )
    found = metric(compare("a", "b", cheap, dear), "tokens per valid environment")
    assert found.interval is not None
    assert found.interval[1] < 0
    assert found.verdict == "not yet known"
    assert found.more is not None
    assert found.more >= 6


def test_a_side_without_valid_environments_has_no_cost_of_one() -> None:
    none = [Answered(0, slot, b"x", valid=False, tokens=10) for slot in range(4)]
    some = [Answered(0, slot, b"y", valid=True, tokens=10) for slot in range(4)]
    found = metric(compare("a", "b", none, some), "tokens per valid environment")
    assert (found.one.value, found.difference, found.verdict) == (None, None, "not yet known")


def test_intervals_and_tests_are_those_of_the_books() -> None:
    # Newcombe 1998, table II, method 10, example (a): 56/70 and 48/80.
    assert newcombe(56 / 70, 70, 48 / 80, 80) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    # Fisher's tea: 3 of 4 and 1 of 4; McNemar exact of 1 and 8: the sign test.
    assert fisher(3, 1, 1, 3) == pytest.approx(0.4857, abs=5e-5)
    assert mcnemar(1, 8) == pytest.approx(2 * (1 + 9) / 512)
    assert mcnemar(0, 0) == 1.0
    low, high = bonett_price(8, 1, 30)
    assert low == pytest.approx(9 / 32 - 2 / 32 - 1.959964 * ((11 / 32 - (7 / 32) ** 2) / 32) ** 0.5)
    assert high == pytest.approx(2 * 7 / 32 - low)


def test_a_bootstrap_over_pairs_does_not_see_what_pairs_have_in_common() -> None:
    ones = [float(value) for value in range(40)]
    others = [value - 1 for value in ones]

    def mean(values: object) -> float:
        assert isinstance(values, list)
        return float(sum(values) / len(values))

    *_, paired = bootstrap(mean, (ones, others), paired=True, resamples=200)
    *_, apart = bootstrap(mean, (ones, others), paired=False, resamples=200)
    assert paired == pytest.approx((1.0, 1.0))
    assert apart is not None
    assert apart[1] - apart[0] > 4


def test_the_sample_that_is_needed_grows_with_the_square_of_the_doubt() -> None:
    # Two means of standard error 0.1 each over 50: a difference of 0.2 takes (2.8 * 0.1 / 0.2)^2 times as many.
    assert needed(0.2, (0.2 - 1.959964 * 0.1, 0.2 + 1.959964 * 0.1), 50) == pytest.approx(98, abs=1)
    assert needed(0.0, (-0.1, 0.1), 50) is None
