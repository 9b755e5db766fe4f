"""Sums and units: sizes, durations, money, averages."""

from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, lines
from services.proposer.authoring.skills.derive import derived

FAMILY = "units"


def sizes_summed(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    sizes = {names.word(): rng.randint(2, 99) for _ in range(4)}
    return derived(
        rng,
        "sizes_summed",
        FAMILY,
        (
            f"Add up the sizes in KiB that {source} lists and write the total in bytes to {target}.",
            f"Write to {target} how many bytes the sizes in {source}, given in KiB, are together.",
        ),
        files={source: lines([f"{name} {size} KiB" for name, size in sizes.items()])},
        target=target,
        right=f"{1024 * sum(sizes.values())}\n",
        turns=[f"awk '{{s += $2}} END {{print s * 1024}}' {source} > {target}"],
        novice=[f"awk '{{s += $2}} END {{print s * 1000}}' {source} > {target}"],
    )


def clock_times(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    spans = [(names.word(), rng.randint(3700, 35000)) for _ in range(3)]
    shown = [f"{name} {s // 3600}:{s % 3600 // 60:02}:{s % 60:02}" for name, s in spans]
    return derived(
        rng,
        "clock_times",
        FAMILY,
        (
            f"Save {source} to {target} with its seconds written as h:mm:ss.",
            f"Convert the durations in {source} from seconds to the form h:mm:ss and save the list to {target}.",
        ),
        files={source: lines([f"{name} {seconds}" for name, seconds in spans])},
        target=target,
        right=lines(shown),
        turns=[
            f"""awk '{{printf "%s %d:%02d:%02d\\n", $1, $2 / 3600, $2 % 3600 / 60, $2 % 60}}' {source} > {target}"""
        ],
        novice=[f"""awk '{{printf "%s %d:%d:%d\\n", $1, $2 / 60, $2 % 60, 0}}' {source} > {target}"""],
    )


def cents_to_money(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    prices = [(names.word(), rng.randint(105, 9999)) for _ in range(4)]
    return derived(
        rng,
        "cents_to_money",
        FAMILY,
        (
            f"Save {source} to {target} with the cents turned into dollars with two decimals.",
            f"Write the prices of {source}, which are in cents, in dollars with two decimals to {target}.",
        ),
        files={source: lines([f"{name} {cents}" for name, cents in prices])},
        target=target,
        right=lines([f"{name} {cents // 100}.{cents % 100:02}" for name, cents in prices]),
        turns=[rf"sed -E 's/(..)$/.\1/' {source} > {target}"],
        novice=[rf"sed -E 's/ (.)/ \1./' {source} > {target}"],
    )


def mean_rounded(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    numbers = [rng.randint(10, 999) for _ in range(4)]
    return derived(
        rng,
        "mean_rounded",
        FAMILY,
        (
            f"Write the mean of the four numbers in {source} with exactly two decimals to {target}.",
            f"Save the average of the numbers in {source}, with two decimals, to {target}.",
        ),
        files={source: lines(numbers)},
        target=target,
        right=f"{sum(numbers) / 4:.2f}\n",
        turns=[f"""awk '{{s += $1}} END {{printf "%.2f\\n", s / NR}}' {source} > {target}"""],
        novice=[f"awk '{{s += $1}} END {{print int(s / NR)}}' {source} > {target}"],
    )


SKILLS = (
    Skill("sizes_summed", FAMILY, sizes_summed, level=3),
    Skill("clock_times", FAMILY, clock_times, level=3),
    Skill("cents_to_money", FAMILY, cents_to_money, level=2),
    Skill("mean_rounded", FAMILY, mean_rounded, level=3),
)
