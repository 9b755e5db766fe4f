"""Tables put together: joined by a key, compared by it, summed by group."""

from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, lines
from services.proposer.authoring.skills.derive import derived

FAMILY = "joins"


def _pair(rng: Random, names: Names) -> tuple[dict[int, str], dict[int, int]]:
    """Names and amounts by number, in order; each side has numbers that the other has not."""
    keys = sorted(rng.sample(range(100, 999), 6))
    left_lacks, *right_lacks = rng.sample(keys, 3)
    left = {key: names.word() for key in keys if key != left_lacks}
    return left, {key: rng.randint(10, 99) for key in keys if key not in right_lacks}


def _csv(rows: dict[int, str] | dict[int, int]) -> str:
    return lines([f"{key},{value}" for key, value in rows.items()])


def join_tables(rng: Random, names: Names) -> Step:
    left, right, target = names.file("csv"), names.file("csv"), names.file("csv")
    words, amounts = _pair(rng, names)
    return derived(
        rng,
        "join_tables",
        FAMILY,
        (
            f"Join {left} and {right} by their first column and save number, name and amount of those that both "
            f"have to {target}.",
            f"Write to {target} the lines of {left} with the amount that {right} has for the same number added, "
            "without those that it has not.",
        ),
        files={left: _csv(words), right: _csv(amounts)},
        target=target,
        right=lines([f"{key},{word},{amounts[key]}" for key, word in words.items() if key in amounts]),
        turns=[f"join -t, {left} {right} > {target}"],
        novice=[f"paste -d, {left} {right} > {target}"],
    )


def join_missing(rng: Random, names: Names) -> Step:
    left, right, target = names.file("csv"), names.file("csv"), names.file("csv")
    words, amounts = _pair(rng, names)
    return derived(
        rng,
        "join_missing",
        FAMILY,
        (
            f"Save the lines of {left} whose number, the first column, {right} does not have to {target}.",
            f"Find the entries of {left} that have no entry of the same number in {right}; save them to {target}.",
        ),
        files={left: _csv(words), right: _csv(amounts)},
        target=target,
        right=lines([f"{key},{word}" for key, word in words.items() if key not in amounts]),
        turns=[f"join -t, -v1 {left} {right} > {target}"],
        novice=[f"join -t, -v2 {left} {right} > {target}"],
    )


def group_totals(rng: Random, names: Names) -> Step:
    source, target = names.file("csv"), names.file("csv")
    groups = names.words(3)
    rows = [(group, rng.randint(10, 99)) for group in (*groups, *groups, rng.choice(groups))]
    rng.shuffle(rows)
    sums = {group: sum(amount for name, amount in rows if name == group) for group in sorted(groups)}
    return derived(
        rng,
        "group_totals",
        FAMILY,
        (
            f"Sum the amounts in {source} for each name and write name,total lines sorted by name to {target}.",
            f"Save one line for each name in {source}, sorted, with a comma and the sum of its amounts, to {target}.",
        ),
        files={source: lines([f"{name},{amount}" for name, amount in rows])},
        target=target,
        right=lines([f"{name},{total}" for name, total in sums.items()]),
        turns=[f"""awk -F, '{{s[$1] += $2}} END {{for (k in s) print k "," s[k]}}' {source} | sort > {target}"""],
        novice=[f"sort -t, -k1,1 {source} > {target}"],
    )


def group_largest(rng: Random, names: Names) -> Step:
    source, target = names.file("csv"), names.file("csv")
    groups = names.words(3)
    amounts = iter(rng.sample(range(10, 999), 7))
    rows = [(group, next(amounts)) for group in (*groups, *groups, rng.choice(groups))]
    rng.shuffle(rows)
    best = {group: max(amount for name, amount in rows if name == group) for group in sorted(groups)}
    return derived(
        rng,
        "group_largest",
        FAMILY,
        (
            f"Keep for each name in {source} only the line with its largest amount, sorted by name, in {target}.",
            f"Write to {target}, sorted by name, the line of {source} with the largest number for each name.",
        ),
        files={source: lines([f"{name},{amount}" for name, amount in rows])},
        target=target,
        right=lines([f"{name},{amount}" for name, amount in best.items()]),
        turns=[f"sort -t, -k1,1 -k2,2nr {source} | awk -F, '!seen[$1]++' > {target}"],
        novice=[f"sort -u -t, -k1,1 {source} > {target} && tail -n 1 {source} >> {target}"],
    )


SKILLS = (
    Skill("join_tables", FAMILY, join_tables, level=2),
    Skill("join_missing", FAMILY, join_missing, level=2),
    Skill("group_totals", FAMILY, group_totals, level=3),
    Skill("group_largest", FAMILY, group_largest, level=4),
)
