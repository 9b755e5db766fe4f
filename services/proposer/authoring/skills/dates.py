"""Date arithmetic on dates that are given: none of it looks at the clock."""

from datetime import UTC, date, datetime, timedelta
from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, lines
from services.proposer.authoring.skills.derive import derived

FAMILY = "dates"


def _day(rng: Random) -> date:
    return date(2001, 1, 1) + timedelta(days=rng.randrange(9000))


def date_weekday(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    days = [_day(rng) for _ in range(3)]
    return derived(
        rng,
        "date_weekday",
        FAMILY,
        (
            f"Write for each date in {source} the number of its day of the week, Monday being 1, to {target}.",
            f"Save the weekday numbers, 1 for Monday to 7 for Sunday, of the dates in {source} to {target}.",
        ),
        files={source: lines([day.isoformat() for day in days])},
        target=target,
        right=lines([day.isoweekday() for day in days]),
        turns=[f"date -u -f {source} +%u > {target}"],
        novice=[f"date -u -f {source} +%d > {target}"],
    )


def days_between(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    first, days = _day(rng), rng.randint(370, 1500)
    second = first + timedelta(days=days)
    return derived(
        rng,
        "days_between",
        FAMILY,
        (
            f"Write the number of days from the first to the second date in {source} to {target}.",
            f"Count how many days after the first date in {source} the second one is, and save that to {target}.",
        ),
        files={source: f"{first}\n{second}\n"},
        target=target,
        right=f"{days}\n",
        turns=[f"date -u -f {source} +%s | awk '{{d = $1 / 86400 - d}} END {{print d}}' > {target}"],
        novice=[f"date -u -f {source} +%j | awk '{{d = $1 - d}} END {{print d}}' > {target}"],
    )


def epoch_dates(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    times = [(names.word(), rng.randrange(10**9, 17 * 10**8)) for _ in range(3)]
    return derived(
        rng,
        "epoch_dates",
        FAMILY,
        (
            f"Save {source} to {target} with each Unix time written as a UTC date, year-month-day.",
            f"Convert the seconds since 1970 in {source} to dates in UTC such as 2020-01-31 and save all to {target}.",
        ),
        files={source: lines([f"{name} {seconds}" for name, seconds in times])},
        target=target,
        right=lines([f"{name} {datetime.fromtimestamp(seconds, UTC).date()}" for name, seconds in times]),
        turns=[f'while read -r n s; do echo "$n $(date -u -d @$s +%F)"; done < {source} > {target}'],
        novice=[f'while read -r n s; do echo "$n $(date -u -d @$s +%D)"; done < {source} > {target}'],
    )


def dates_sorted(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    days = sorted({_day(rng) for _ in range(4)})
    right = [f"{day:%d.%m.%Y} {names.word()}" for day in days]
    order = rng.sample(right, len(right))
    if order in (right, sorted(right)):
        order.reverse()
    return derived(
        rng,
        "dates_sorted",
        FAMILY,
        (
            f"Sort the lines of {source}, which start with a day.month.year date, by date into {target}.",
            f"Save {source} with the oldest date first to {target}; its dates are written day.month.year.",
        ),
        files={source: lines(order)},
        target=target,
        right=lines(right),
        turns=[f"sort -t. -k3,3n -k2,2n -k1,1n {source} > {target}"],
        novice=[f"sort -r {source} > {target}"],
    )


SKILLS = (
    Skill("date_weekday", FAMILY, date_weekday, level=2),
    Skill("days_between", FAMILY, days_between, level=3),
    Skill("epoch_dates", FAMILY, epoch_dates, level=3),
    Skill("dates_sorted", FAMILY, dates_sorted, level=3),
)
