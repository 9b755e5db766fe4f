"""Regular expressions: pull out, swap, mask, match whole lines."""

import re
from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, lines
from services.proposer.authoring.skills.derive import derived

FAMILY = "regex"


def pull_numbers(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    text = lines([f"{names.word()} {rng.randint(100, 999)} {names.word()}{rng.randint(10, 99)}" for _ in range(3)])
    return derived(
        rng,
        "pull_numbers",
        FAMILY,
        (
            f"Write every whole number in {source} to {target}, one a line and in their order.",
            f"Pull all numbers, also those at the end of words, out of {source} into {target}, one a line.",
        ),
        files={source: text},
        target=target,
        right=lines(re.findall(r"\d+", text)),
        turns=[f"grep -oE '[0-9]+' {source} > {target}"],
        novice=[f"grep -owE '[0-9]+' {source} > {target}"],
    )


def swap_parts(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    mark = rng.choice((":", "=", "/"))
    pairs = [(names.word(), names.word()) for _ in range(4)]
    return derived(
        rng,
        "swap_parts",
        FAMILY,
        (
            f"Save {source} to {target} with the two words of each line, which a {mark} parts, in the other order.",
            f"Swap what is left and right of the {mark} in each line of {source} and save that to {target}.",
        ),
        files={source: lines([f"{left}{mark}{right}" for left, right in pairs])},
        target=target,
        right=lines([f"{right}{mark}{left}" for left, right in pairs]),
        turns=[rf"sed -E 's|(.*){mark}(.*)|\2{mark}\1|' {source} > {target}"],
        novice=[f"rev {source} > {target}"],
    )


def mask_digits(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    text = lines([f"{names.word()} {rng.randint(1000, 99999)} {names.word()}" for _ in range(3)])
    return derived(
        rng,
        "mask_digits",
        FAMILY,
        (
            f"Save {source} to {target} with every digit replaced by #.",
            f"Mask the numbers of {source}: write it to {target} with one # for each digit.",
        ),
        files={source: text},
        target=target,
        right=re.sub(r"\d", "#", text),
        turns=[f"sed 's/[0-9]/#/g' {source} > {target}"],
        novice=[f"sed 's/[0-9]*/#/g' {source} > {target}"],
    )


def match_codes(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    good = [f"{_capitals(rng)}-{rng.randint(100, 999)}" for _ in range(3)]
    bad = [
        f"{_capitals(rng)}-{rng.randint(1000, 9999)}",
        f"{_capitals(rng)}{rng.randint(100, 999)}",
        f"{_capitals(rng).lower()}-{rng.randint(100, 999)}",
        f"X{_capitals(rng)}-{rng.randint(100, 999)}",
    ]
    mixed = rng.sample([*good, *bad], len(good) + len(bad))
    return derived(
        rng,
        "match_codes",
        FAMILY,
        (
            f"Save the lines of {source} that are exactly two capital letters, a hyphen and three digits to {target}.",
            f"Copy only the lines of {source} of the form AB-123, two capitals and three digits, to {target}.",
        ),
        files={source: lines(mixed)},
        target=target,
        right=lines([code for code in mixed if code in good]),
        turns=[f"grep -xE '[A-Z]{{2}}-[0-9]{{3}}' {source} > {target}"],
        novice=[f"grep -E '[A-Z]{{2}}-[0-9]{{3}}' {source} > {target}"],
    )


def _capitals(rng: Random) -> str:
    return "".join(rng.choices("ABCDEFGHKLMNPRSTUVW", k=2))


SKILLS = (
    Skill("pull_numbers", FAMILY, pull_numbers, level=2),
    Skill("swap_parts", FAMILY, swap_parts, level=2),
    Skill("mask_digits", FAMILY, mask_digits, level=2),
    Skill("match_codes", FAMILY, match_codes, level=2),
)
