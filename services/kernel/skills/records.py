"""Search logs, cut tables, rewrite JSON documents."""

import json
from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, both, lines, make_step, mistake, same

LOGS = "logs"
CSV = "csv"
JSON = "json"


def _log(rng: Random, names: Names) -> list[str]:
    """Four or five entries; `error` and `info` both occur, and `error` as often as not in a row."""
    levels = ["error", "info", "error", "info", rng.choice(("error", "info"))][: rng.randint(4, 5)]
    rng.shuffle(levels)
    return [f"{level} {names.word()}" for level in levels]


def find_lines(rng: Random, names: Names) -> Step:
    source, target = names.file("log"), names.file()
    entries, level = _log(rng, names), rng.choice(("error", "info"))
    right = [entry for entry in entries if level in entry]
    return make_step(
        "find_lines",
        LOGS,
        rng.choice(
            (
                f"Save the lines of {source} that contain {level} to {target}.",
                f"Find the {level} lines of {source} and save them to {target}.",
            )
        ),
        files={source: lines(entries)},
        turns=[f"grep {level} {source} > {target}"],
        novice=mistake(rng, [(f"grep {level} {source}", lines(right))], [f"cp {source} {target}"]),
        checks={
            "right": same(target, lines(right)),
            "source_kept": both(f"[ -s {target} ]", same(source, lines(entries))),
        },
    )


def drop_lines(rng: Random, names: Names) -> Step:
    source, target = names.file("log"), names.file()
    entries, level = _log(rng, names), rng.choice(("error", "info"))
    right = [entry for entry in entries if level not in entry]
    return make_step(
        "drop_lines",
        LOGS,
        rng.choice(
            (
                f"Save the lines of {source} without {level} to {target}.",
                f"Copy {source} to {target} but leave out the {level} lines.",
            )
        ),
        files={source: lines(entries)},
        turns=[f"grep -v {level} {source} > {target}"],
        novice=[f"grep {level} {source} > {target}"],
        checks={
            "right": same(target, lines(right)),
            "source_kept": both(f"[ -s {target} ]", same(source, lines(entries))),
        },
    )


def count_matches(rng: Random, names: Names) -> Step:
    source, target = names.file("log"), names.file()
    entries, level = _log(rng, names), rng.choice(("error", "info"))
    right = [entry for entry in entries if level in entry]
    return make_step(
        "count_matches",
        LOGS,
        rng.choice(
            (
                f"Count the {level} lines of {source} and save the number to {target}.",
                f"Save the number of lines with {level} in {source} to {target}.",
            )
        ),
        files={source: lines(entries)},
        turns=[f"grep -c {level} {source} > {target}"],
        novice=mistake(rng, [f"grep {level} {source} > {target}"], [(f"grep -c {level} {source}", f"{len(right)}\n")]),
        checks={
            "right": f'[ "$(cat {target})" = {len(right)} ]',
            "source_kept": both(f"[ -s {target} ]", same(source, lines(entries))),
        },
    )


def count_lines(rng: Random, names: Names) -> Step:
    source, target = names.file("log"), names.file()
    entries = [f"{rng.choice(('error', 'info'))} {word}" for word in names.words(rng.randint(3, 6))]
    return make_step(
        "count_lines",
        LOGS,
        rng.choice(
            (
                f"Count the lines of {source} and save the number to {target}.",
                f"Save the number of lines in {source} to {target}.",
            )
        ),
        files={source: lines(entries)},
        turns=[f"wc -l < {source} > {target}"],
        novice=[f"wc -l {source} > {target}"],
        checks={
            "right": f'[ "$(cat {target})" = {len(entries)} ]',
            "source_kept": both(f"[ -s {target} ]", same(source, lines(entries))),
        },
    )


def _table(rng: Random, names: Names, separator: str = ",") -> list[list[str]]:
    width = rng.randint(3, 4)
    head = list(names.words(width))
    rows = [[names.word(), *(str(rng.randint(10, 99)) for _ in range(width - 1))] for _ in range(2)]
    return [head, *rows]


def _csv(rows: list[list[str]], separator: str = ",") -> str:
    return lines([separator.join(row) for row in rows])


def csv_column(rng: Random, names: Names) -> Step:
    source, target = names.file("csv"), names.file()
    rows = _table(rng, names)
    column = rng.randint(2, len(rows[0]))
    return make_step(
        "csv_column",
        CSV,
        rng.choice(
            (f"Save column {column} of {source} to {target}.", f"Write only column {column} of {source} to {target}.")
        ),
        files={source: _csv(rows)},
        turns=[f"cut -d, -f{column} {source} > {target}"],
        novice=[f"cut -f{column} {source} > {target}"],
        checks={
            "right": same(target, lines([row[column - 1] for row in rows])),
            "source_kept": both(f"[ -s {target} ]", same(source, _csv(rows))),
        },
    )


def csv_body(rng: Random, names: Names) -> Step:
    source, target = names.file("csv"), names.file("csv")
    rows = _table(rng, names)
    rows.append([names.word(), *rows[1][1:]])
    return make_step(
        "csv_body",
        CSV,
        rng.choice(
            (
                f"Save {source} without its header line to {target}.",
                f"Copy all but the first line of {source} to {target}.",
            )
        ),
        files={source: _csv(rows)},
        turns=[f"tail -n +2 {source} > {target}"],
        novice=[f"tail -n 2 {source} > {target}"],
        checks={
            "right": same(target, _csv(rows[1:])),
            "source_kept": both(f"[ -s {target} ]", same(source, _csv(rows))),
        },
    )


def csv_commas(rng: Random, names: Names) -> Step:
    target = names.file("csv")
    rows = _table(rng, names)
    return make_step(
        "csv_commas",
        CSV,
        rng.choice(
            (f"Change every semicolon in {target} to a comma.", f"Replace all semicolons in {target} with commas.")
        ),
        files={target: _csv(rows, ";")},
        turns=[f"sed -i 's/;/,/g' {target}"],
        novice=[f"sed -i 's/;/,/' {target}"],
        checks={"commas": f"grep -q , {target}", "right": same(target, _csv(rows))},
    )


def _document(rng: Random, names: Names) -> dict[str, int]:
    """Keys out of order."""
    keys = sorted(names.words(3))
    return {key: rng.randint(10, 99) for key in (keys[1], keys[2], keys[0])}


def json_sorted(rng: Random, names: Names) -> Step:
    source, target = names.file("json"), names.file("json")
    document = _document(rng, names)
    text = json.dumps(document) + "\n"
    right = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return make_step(
        "json_sorted",
        JSON,
        rng.choice(
            (
                f"Save {source} with sorted keys to {target}.",
                f"Sort the keys of {source} and save the result to {target}.",
            )
        ),
        files={source: text},
        turns=[f"python3 -m json.tool --sort-keys {source} {target}"],
        novice=[f"python3 -m json.tool {source} {target}"],
        checks={
            "right": f"[ -f {target} ] && [ \"$(tr -d ' \\n' < {target})\" = '{right}' ]",
            "source_kept": both(f"[ -s {target} ]", same(source, text)),
        },
    )


def json_compact(rng: Random, names: Names) -> Step:
    source, target = names.file("json"), names.file("json")
    document = _document(rng, names)
    text = json.dumps(document, indent=2) + "\n"
    return make_step(
        "json_compact",
        JSON,
        rng.choice(
            (
                f"Save {source} in compact form without spaces to {target}.",
                f"Write {source} to {target} on one line without spaces.",
            )
        ),
        files={source: text},
        turns=[f"python3 -m json.tool --compact {source} {target}"],
        novice=mistake(rng, [f"python3 -m json.tool {source} {target}"], [f"cp {source} {target}"]),
        checks={
            "right": same(target, json.dumps(document, separators=(",", ":"))),
            "source_kept": both(f"[ -s {target} ]", same(source, text)),
        },
    )


def json_set(rng: Random, names: Names) -> Step:
    target = names.file("json")
    document = _document(rng, names)
    key = rng.choice(list(document))
    old, new = document[key], rng.randint(100, 199)
    text = json.dumps(document, indent=2) + "\n"
    right = json.dumps(document | {key: new}, separators=(",", ":"))
    entry = next(line for line in text.splitlines() if key in line)
    return make_step(
        "json_set",
        JSON,
        rng.choice(
            (f"Look up {key} in {target} and set it to {new}.", f"Set the value of {key} in {target} to {new}.")
        ),
        files={target: text},
        turns=[(f"grep {key} {target}", f"{entry}\n"), f"sed -i '/{key}/s/{old}/{new}/' {target}"],
        novice=[f"echo {key} {new} > {target}"],
        checks={
            "new_value": f"grep -q '\"\\?{key}\"\\?[: ]*{new}' {target}",
            "right": f"[ \"$(tr -d ' \\n' < {target})\" = '{right}' ]",
        },
    )


SKILLS = (
    Skill("find_lines", LOGS, find_lines, level=2),
    Skill("drop_lines", LOGS, drop_lines, level=2),
    Skill("count_matches", LOGS, count_matches, level=2),
    Skill("count_lines", LOGS, count_lines, level=2),
    Skill("csv_column", CSV, csv_column, level=2),
    Skill("csv_body", CSV, csv_body, level=2),
    Skill("csv_commas", CSV, csv_commas, level=2),
    Skill("json_sorted", JSON, json_sorted, level=2),
    Skill("json_compact", JSON, json_compact, level=2),
    Skill("json_set", JSON, json_set, level=3, turns_min=2),
)
