"""Write, append, cut, change, join and sort the lines of text files."""

from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, both, lines, make_step, mistake, same

FAMILY = "text"
SORT = "sort"


def write_line(rng: Random, names: Names) -> Step:
    word, target = names.word(), names.file()
    return make_step(
        "write_line",
        FAMILY,
        rng.choice((f"Write the word {word} to {target}.", f"Create {target} with the single line {word}.")),
        turns=[f"echo {word} > {target}"],
        novice=mistake(rng, [(f"echo {word}", f"{word}\n")], [f"touch {target}"]),
        checks={"made": f"[ -f {target} ]", "right": same(target, word)},
    )


def append_line(rng: Random, names: Names) -> Step:
    word, target = names.word(), names.file()
    old = lines(names.words(2))
    return make_step(
        "append_line",
        FAMILY,
        rng.choice((f"Append the line {word} to {target}.", f"Add the line {word} at the end of {target}.")),
        files={target: old},
        turns=[f"echo {word} >> {target}"],
        novice=[f"echo {word} > {target}"],
        checks={"last_line": f'[ "$(tail -n 1 {target})" = {word} ]', "rest_kept": same(target, f"{old}{word}\n")},
    )


def _select(rng: Random, names: Names, skill: str, tool: str, which: str) -> Step:
    source, target = names.file(), names.file()
    words = names.words(rng.randint(4, 5))
    count = rng.randint(2, 3)
    right = words[:count] if tool == "head" else words[-count:]
    return make_step(
        skill,
        FAMILY,
        rng.choice(
            (
                f"Save the {which} {count} lines of {source} to {target}.",
                f"Write the {which} {count} lines of {source} into {target}.",
            )
        ),
        files={source: lines(words)},
        turns=[f"{tool} -n {count} {source} > {target}"],
        novice=[f"{tool} {source} > {target}"],
        checks={
            "right": same(target, lines(right)),
            "source_kept": both(f"[ -s {target} ]", same(source, lines(words))),
        },
    )


def first_lines(rng: Random, names: Names) -> Step:
    return _select(rng, names, "first_lines", "head", "first")


def last_lines(rng: Random, names: Names) -> Step:
    return _select(rng, names, "last_lines", "tail", "last")


def upper_case(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    text = lines(names.words(2))
    quoted = f"\N{LEFT SINGLE QUOTATION MARK}{source}\N{RIGHT SINGLE QUOTATION MARK}"
    return make_step(
        "upper_case",
        FAMILY,
        rng.choice((f"Write {source} in upper case to {target}.", f"Save {source} in capital letters as {target}.")),
        files={source: text},
        turns=[f"tr a-z A-Z < {source} > {target}"],
        novice=mistake(
            rng,
            [f"cp {source} {target}"],
            [(f"tr a-z A-Z {source}", f"tr: extra operand {quoted}\nTry 'tr --help' for more information.\n")],
        ),
        checks={"right": same(target, text.upper()), "source_kept": both(f"[ -s {target} ]", same(source, text))},
    )


def replace_word(rng: Random, names: Names) -> Step:
    old, new, other, target = names.word(), names.word(), names.word(), names.file()
    text = f"{old} {other}\n{other} {old}\n"
    return make_step(
        "replace_word",
        FAMILY,
        rng.choice((f"Replace {old} with {new} in {target}.", f"Change every {old} in {target} to {new}.")),
        files={target: text},
        turns=[f"sed -i s/{old}/{new}/ {target}"],
        novice=mistake(rng, [(f"sed s/{old}/{new}/ {target}", text.replace(old, new))], [f"echo {new} > {target}"]),
        checks={
            "old_gone": f"[ -s {target} ] && ! grep -q {old} {target}",
            "right": same(target, text.replace(old, new)),
        },
    )


def join_files(rng: Random, names: Names) -> Step:
    first, second, target = names.file(), names.file(), names.file()
    upper, lower = lines(names.words(2)), lines(names.words(2))
    return make_step(
        "join_files",
        FAMILY,
        rng.choice((f"Join {first} and {second} into {target}.", f"Write {first} followed by {second} into {target}.")),
        files={first: upper, second: lower},
        turns=[f"cat {first} {second} > {target}"],
        novice=mistake(
            rng,
            [f"cp {first} {target}"],
            [(f"cat {first} {second}", upper + lower)],
            [f"cat {second} {first} > {target}"],
        ),
        checks={
            "starts_right": f'[ "$(head -n 1 {target})" = {upper.split()[0]} ]',
            "right": same(target, upper + lower),
        },
    )


def sort_lines(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    words = _unsorted(rng, list(names.words(4)))
    return make_step(
        "sort_lines",
        SORT,
        rng.choice((f"Sort the lines of {source} into {target}.", f"Save the sorted lines of {source} to {target}.")),
        files={source: lines(words)},
        turns=[f"sort {source} > {target}"],
        novice=mistake(rng, [(f"sort {source}", lines(sorted(words)))], [f"cp {source} {target}"]),
        checks={
            "right": same(target, lines(sorted(words))),
            "source_kept": both(f"[ -s {target} ]", same(source, lines(words))),
        },
    )


def sort_reverse(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    words = _unsorted(rng, list(names.words(4)))
    return make_step(
        "sort_reverse",
        SORT,
        rng.choice(
            (
                f"Sort the lines of {source} in reverse order into {target}.",
                f"Save the lines of {source} sorted from z to a to {target}.",
            )
        ),
        files={source: lines(words)},
        turns=[f"sort -r {source} > {target}"],
        novice=[f"sort {source} > {target}"],
        checks={
            "right": same(target, lines(sorted(words, reverse=True))),
            "source_kept": both(f"[ -s {target} ]", same(source, lines(words))),
        },
    )


def sort_numbers(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    numbers = [rng.randint(2, 9), rng.randint(10, 19), rng.randint(100, 199), rng.randint(20, 99)]
    rng.shuffle(numbers)
    right = sorted(numbers)
    if numbers == right:
        numbers.reverse()
    return make_step(
        "sort_numbers",
        SORT,
        rng.choice(
            (
                f"Sort the numbers in {source} into {target}.",
                f"Save the numbers of {source} from small to large to {target}.",
            )
        ),
        files={source: lines(numbers)},
        turns=[f"sort -n {source} > {target}"],
        novice=[f"sort {source} > {target}"],
        checks={
            "right": same(target, lines(right)),
            "source_kept": both(f"[ -s {target} ]", same(source, lines(numbers))),
        },
    )


def unique_lines(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    words = list(names.words(3))
    repeated = [words[2], words[0], words[1], words[0]]
    return make_step(
        "unique_lines",
        SORT,
        rng.choice(
            (
                f"Save the lines of {source} sorted and without repeats to {target}.",
                f"Sort {source} into {target} with every line only once.",
            )
        ),
        files={source: lines(repeated)},
        turns=[f"sort -u {source} > {target}"],
        novice=[f"{rng.choice(('uniq', 'sort'))} {source} > {target}"],
        checks={
            "right": same(target, lines(sorted(words))),
            "source_kept": both(f"[ -s {target} ]", same(source, lines(repeated))),
        },
    )


def _unsorted(rng: Random, words: list[str]) -> list[str]:
    rng.shuffle(words)
    return words[::-1] if words == sorted(words) else words


SKILLS = (
    Skill("write_line", FAMILY, write_line),
    Skill("append_line", FAMILY, append_line),
    Skill("first_lines", FAMILY, first_lines, level=2),
    Skill("last_lines", FAMILY, last_lines, level=2),
    Skill("upper_case", FAMILY, upper_case, level=2),
    Skill("replace_word", FAMILY, replace_word, level=2),
    Skill("join_files", FAMILY, join_files),
    Skill("sort_lines", SORT, sort_lines),
    Skill("sort_reverse", SORT, sort_reverse, level=2),
    Skill("sort_numbers", SORT, sort_numbers, level=2),
    Skill("unique_lines", SORT, unique_lines, level=2),
)
