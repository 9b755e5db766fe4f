"""Is this data as it should be: rows, values, repeats, documents."""

import json
from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, lines
from services.proposer.authoring.skills.derive import derived

FAMILY = "validation"


def rows_short(rng: Random, names: Names) -> Step:
    source, target = names.file("csv"), names.file()
    rows = [[names.word(), str(rng.randint(10, 99)), names.word()] for _ in range(6)]
    bad = sorted(rng.sample(range(2, 7), 2))
    rows[bad[0] - 1].pop()
    rows[bad[1] - 1].append(names.word())
    return derived(
        rng,
        "rows_short",
        FAMILY,
        (
            f"Write the line numbers of the rows in {source} that do not have three fields to {target}.",
            f"Find the rows of {source} with more or fewer than three fields and save their line numbers to {target}.",
        ),
        files={source: lines([",".join(row) for row in rows])},
        target=target,
        right=lines(bad),
        turns=[f"awk -F, 'NF != 3 {{print NR}}' {source} > {target}"],
        novice=[f"awk -F, 'NF < 3 {{print NR}}' {source} > {target}"],
    )


def values_outside(rng: Random, names: Names) -> Step:
    source, target = names.file("csv"), names.file()
    low, high = rng.randint(20, 40), rng.randint(60, 80)
    values: list[object] = [low, high, rng.randint(low, high), low - rng.randint(1, 9), high + rng.randint(1, 9)]
    values.append(rng.choice(("none", "", "-")))
    rng.shuffle(values)
    rows = [(names.word(), value) for value in values]
    bad = [name for name, value in rows if not (isinstance(value, int) and low <= value <= high)]
    return derived(
        rng,
        "values_outside",
        FAMILY,
        (
            f"Write the names in {source} whose value is no whole number from {low} to {high} to {target}.",
            f"Check the second column of {source}: save the names of rows where it is not a number between {low} "
            f"and {high}, both allowed, to {target}.",
        ),
        files={source: lines([f"{name},{value}" for name, value in rows])},
        target=target,
        right=lines(bad),
        turns=[f"awk -F, '$2 !~ /^[0-9]+$/ || $2 < {low} || $2 > {high} {{print $1}}' {source} > {target}"],
        novice=[f"awk -F, '$2 > {high} {{print $1}}' {source} > {target}"],
    )


def names_repeated(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    words = names.words(5)
    mixed = rng.sample([*words, words[1], words[3], words[3]], 8)
    return derived(
        rng,
        "names_repeated",
        FAMILY,
        (
            f"Write the lines that occur more than once in {source} to {target}, each once and sorted.",
            f"Find the repeated lines of {source} and save each of them once, sorted, to {target}.",
        ),
        files={source: lines(mixed)},
        target=target,
        right=lines(sorted((words[1], words[3]))),
        turns=[f"sort {source} | uniq -d > {target}"],
        novice=[f"uniq -d {source} > {target}"],
    )


def documents_broken(rng: Random, names: Names) -> Step:
    folder, target = names.word(), names.file()
    texts = [json.dumps({names.word(): rng.randint(10, 99)}) + "\n" for _ in range(3)]
    paths = [f"{folder}/{names.file('json')}" for _ in texts]
    bad = rng.randrange(3)
    texts[bad] = texts[bad].replace(": ", " ") if rng.random() < 0.5 else texts[bad].replace("}", "")
    good = rng.choice([path for place, path in enumerate(paths) if place != bad])
    check = "python3 -m json.tool $f > /dev/null 2>&1"
    return derived(
        rng,
        "documents_broken",
        FAMILY,
        (
            f"Write the path of the one document in the folder {folder} that is no valid JSON to {target}.",
            f"Find out which file in the folder {folder} cannot be read as JSON and save its path to {target}.",
        ),
        files=dict(zip(paths, texts, strict=True)),
        target=target,
        right=f"{paths[bad]}\n",
        turns=[f"for f in {folder}/*; do {check} || echo $f; done > {target}"],
        novice=[f"echo {good} > {target}"],
    )


SKILLS = (
    Skill("rows_short", FAMILY, rows_short, level=2),
    Skill("values_outside", FAMILY, values_outside, level=3),
    Skill("names_repeated", FAMILY, names_repeated, level=2),
    Skill("documents_broken", FAMILY, documents_broken, level=3),
)
