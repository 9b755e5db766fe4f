"""Tables of words and numbers: align, total, rearrange, turn."""

from collections.abc import Sequence
from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, lines
from services.proposer.authoring.skills.derive import derived

FAMILY = "tables"


def _rows(rng: Random, names: Names, count: int) -> list[list[str]]:
    """A word and two numbers a row."""
    return [[names.word(), str(rng.randint(10, 999)), str(rng.randint(10, 999))] for _ in range(count)]


def _text(rows: Sequence[Sequence[str]]) -> str:
    return lines([" ".join(row) for row in rows])


def table_align(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    rows = _rows(rng, names, 4)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return derived(
        rng,
        "table_align",
        FAMILY,
        (
            f"Save {source} to {target} with its columns aligned to the left and two blanks between them.",
            f"Align the columns of {source} as column -t does and save the table to {target}.",
        ),
        files={source: _text(rows)},
        target=target,
        right=lines(padded),
        turns=[f"column -t {source} > {target}"],
        novice=[f"tr ' ' '\\t' < {source} > {target}"],
    )


def table_total(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    rows = _rows(rng, names, 3)
    column = rng.choice((2, 3))
    total = sum(int(row[column - 1]) for row in rows)
    return derived(
        rng,
        "table_total",
        FAMILY,
        (
            f"Save {source} to {target} with a last line that says total and the sum of column {column}.",
            f"Copy {source} to {target} and add a line: the word total, a blank, and column {column} summed up.",
        ),
        files={source: _text(rows)},
        target=target,
        right=_text([*rows, ["total", str(total)]]),
        turns=[f"""awk '{{s += ${column}; print}} END {{print "total", s}}' {source} > {target}"""],
        novice=[f"cp {source} {target} && echo total >> {target}"],
    )


def table_order(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    rows = _rows(rng, names, 3)
    order = rng.choice(((3, 1, 2), (2, 3, 1), (3, 2, 1)))
    said = f"{order[0]}, {order[1]} and {order[2]}"
    return derived(
        rng,
        "table_order",
        FAMILY,
        (
            f"Save the columns {said} of {source}, in this order and with blanks between them, to {target}.",
            f"Rearrange {source}: write its columns to {target} in the order {said}, parted by blanks.",
        ),
        files={source: _text(rows)},
        target=target,
        right=_text([[row[place - 1] for place in order] for row in rows]),
        turns=[f"awk '{{print ${order[0]}, ${order[1]}, ${order[2]}}}' {source} > {target}"],
        novice=[f"cut -d' ' -f{order[0]},{order[1]},{order[2]} {source} > {target}"],
    )


def table_turn(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    rows = [row[:2] for row in _rows(rng, names, 4)]
    return derived(
        rng,
        "table_turn",
        FAMILY,
        (
            f"Turn the two columns of {source} into the two lines of {target}, with blanks between the entries.",
            f"Write {source} to {target} with rows and columns exchanged, entries parted by blanks.",
        ),
        files={source: _text(rows)},
        target=target,
        right=_text(list(zip(*rows, strict=True))),
        turns=[
            f"cut -d' ' -f1 {source} | paste -sd' ' > {target}",
            f"cut -d' ' -f2 {source} | paste -sd' ' >> {target}",
        ],
        novice=[f"paste -sd' ' {source} > {target}"],
    )


SKILLS = (
    Skill("table_align", FAMILY, table_align, level=2),
    Skill("table_total", FAMILY, table_total, level=3),
    Skill("table_order", FAMILY, table_order, level=2),
    Skill("table_turn", FAMILY, table_turn, level=2, turns_min=2),
)
