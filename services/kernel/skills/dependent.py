"""Skills in which a later command depends on what an earlier one printed: notes to obey, and places to search."""

from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, both, lines, make_step, mistake, same
from services.kernel.skills.system import repository

LOOKUP = "lookup"
SEARCH = "search"


def note_delete(rng: Random, names: Names) -> Step:
    note, gone, kept = names.file(), names.file(), names.file()
    text = _shuffled(rng, f"delete {gone}", f"keep {kept}")
    kept_text = lines(names.words(1))
    return make_step(
        "note_delete",
        LOOKUP,
        rng.choice(
            (f"Read {note} and delete the file that it wants deleted.", f"Delete the file that {note} says to delete.")
        ),
        files={note: text, gone: lines(names.words(1)), kept: kept_text},
        turns=[(f"cat {note}", text), f"rm {gone}"],
        novice=mistake(rng, [f"rm {note}"], [(f"cat {note}", text), f"rm {kept}"]),
        checks={
            "gone": f"[ ! -e {gone} ]",
            "rest_kept": both(f"[ ! -e {gone} ]", f"{same(kept, kept_text)} && {same(note, text)}"),
        },
    )


def note_create(rng: Random, names: Names) -> Step:
    note, wanted, unwanted = names.file(), names.word(), names.word()
    text = _shuffled(rng, f"new {wanted}", f"old {unwanted}")
    return make_step(
        "note_create",
        LOOKUP,
        rng.choice(
            (f"Make the folder that {note} calls new.", f"Read {note} and create a folder with the name it calls new.")
        ),
        files={note: text},
        turns=[(f"cat {note}", text), f"mkdir {wanted}"],
        novice=mistake(rng, [(f"cat {note}", text), f"mkdir {unwanted}"], ["mkdir new"]),
        checks={
            "made": f"[ -d {wanted} ]",
            "only_it": both(f"[ -d {wanted} ]", f"[ ! -e {unwanted} ] && {same(note, text)}"),
        },
    )


def note_copy(rng: Random, names: Names) -> Step:
    note, wanted, other, target = names.file(), names.file(), names.file(), names.file()
    text = _shuffled(rng, f"good {wanted}", f"bad {other}")
    wanted_text, other_text = lines(names.words(1)), lines(names.words(1))
    return make_step(
        "note_copy",
        LOOKUP,
        rng.choice(
            (f"Copy the file that {note} calls good to {target}.", f"Read {note} and copy the good file to {target}.")
        ),
        files={note: text, wanted: wanted_text, other: other_text},
        turns=[(f"cat {note}", text), f"cp {wanted} {target}"],
        novice=mistake(rng, [f"cp {note} {target}"], [(f"cat {note}", text), f"cp {other} {target}"]),
        checks={
            "copied": same(target, wanted_text),
            "source_kept": both(f"[ -e {target} ]", same(wanted, wanted_text)),
        },
    )


def note_write(rng: Random, names: Names) -> Step:
    note, key, value, other_key, other = names.file(), *names.words(4)
    target = names.file()
    text = _shuffled(rng, f"{key} {value}", f"{other_key} {other}")
    return make_step(
        "note_write",
        LOOKUP,
        rng.choice(
            (
                f"Look up {key} in {note} and write the word beside it to {target}.",
                f"Write the word that stands beside {key} in {note} to {target}.",
            )
        ),
        files={note: text},
        turns=[(f"grep {key} {note}", f"{key} {value}\n"), f"echo {value} > {target}"],
        novice=mistake(rng, [f"grep {key} {note} > {target}"], [f"echo {key} > {target}"]),
        checks={"right": same(target, value), "note_kept": both(f"[ -s {target} ]", same(note, text))},
    )


def trail_delete(rng: Random, names: Names) -> Step:
    first, second, gone, kept = names.file(), names.file(), names.file(), names.file()
    kept_text = lines(names.words(1))
    return make_step(
        "trail_delete",
        LOOKUP,
        rng.choice(
            (
                f"Read {first} and follow its trail to the file to delete.",
                f"Follow the notes from {first} and delete the file the last one names.",
            )
        ),
        files={first: f"read {second}\n", second: f"delete {gone}\n", gone: lines(names.words(1)), kept: kept_text},
        turns=[(f"cat {first}", f"read {second}\n"), (f"cat {second}", f"delete {gone}\n"), f"rm {gone}"],
        novice=[(f"cat {first}", f"read {second}\n"), f"rm {second}"],
        checks={
            "gone": f"[ ! -e {gone} ]",
            "rest_kept": both(f"[ ! -e {gone} ]", f"[ -e {first} ] && [ -e {second} ] && {same(kept, kept_text)}"),
        },
    )


def find_and_delete(rng: Random, names: Names) -> Step:
    folder, word = names.word(), names.word()
    paths = [f"{folder}/{names.file()}" for _ in range(3)]
    texts = [lines([names.word()]) for _ in paths]
    chosen = rng.randrange(len(paths))
    texts[chosen] = lines([word])
    rest = " && ".join(
        same(path, text) for index, (path, text) in enumerate(zip(paths, texts, strict=True)) if index != chosen
    )
    found = paths[chosen]
    return make_step(
        "find_and_delete",
        SEARCH,
        rng.choice(
            (
                f"Delete the file in the folder {folder} that contains {word}.",
                f"Find the file with the word {word} in the folder {folder} and delete it.",
            )
        ),
        files=dict(zip(paths, texts, strict=True)),
        turns=[(f"grep -l {word} {folder}/*", f"{found}\n"), f"rm {found}"],
        novice=mistake(
            rng, [f"rm {folder}/*"], [(f"rm {word}", f"rm: cannot remove '{word}': No such file or directory\n")]
        ),
        checks={"gone": f"[ ! -e {found} ]", "rest_kept": both(f"[ ! -e {found} ]", rest)},
    )


def ask_program(rng: Random, names: Names) -> Step:
    program, gone, kept = names.file("py"), names.file(), names.file()
    kept_text = lines(names.words(1))
    said = _shuffled(rng, f"old {gone}", f"new {kept}")
    source = "".join(f'print("{line}")\n' for line in said.splitlines())
    return make_step(
        "ask_program",
        SEARCH,
        rng.choice(
            (
                f"Run {program} and delete the file that it calls old.",
                f"Delete the file that {program} calls old when it runs.",
            )
        ),
        files={program: source, gone: lines(names.words(1)), kept: kept_text},
        turns=[(f"python3 {program}", said), f"rm {gone}"],
        novice=mistake(rng, [f"rm {program}"], [(f"python3 {program}", said), f"rm {kept}"]),
        checks={
            "gone": f"[ ! -e {gone} ]",
            "rest_kept": both(f"[ ! -e {gone} ]", f"{same(kept, kept_text)} && [ -s {program} ]"),
        },
    )


def pick_from_folder(rng: Random, names: Names) -> Step:
    folder, target = names.word(), names.file()
    wanted = names.file("log")
    others = [names.file() for _ in range(2)]
    text = lines(names.words(1))
    listing = lines(sorted([wanted, *others]))
    return make_step(
        "pick_from_folder",
        SEARCH,
        rng.choice(
            (
                f"Copy the log file in the folder {folder} to {target}.",
                f"List the folder {folder} and copy its only log file to {target}.",
            )
        ),
        files={f"{folder}/{wanted}": text, **{f"{folder}/{other}": lines(names.words(1)) for other in others}},
        turns=[(f"ls {folder}", listing), f"cp {folder}/{wanted} {target}"],
        novice=mistake(
            rng,
            [(f"ls {folder}", listing), f"cp {folder}/{others[0]} {target}"],
            [f"ls {folder} > {target}"],
        ),
        checks={
            "copied": same(target, text),
            "source_kept": both(f"[ -e {target} ]", same(f"{folder}/{wanted}", text)),
        },
    )


def count_and_name(rng: Random, names: Names) -> Step:
    source, count = names.file(), rng.randint(3, 7)
    text = lines(names.words(count))
    return make_step(
        "count_and_name",
        SEARCH,
        rng.choice(
            (
                f"Count the lines of {source} and make a folder named after the number.",
                f"Make a folder whose name is the number of lines in {source}.",
            )
        ),
        files={source: text},
        turns=[(f"wc -l < {source}", f"{count}\n"), f"mkdir {count}"],
        novice=mistake(rng, [f"mkdir {source.split('.')[0]}"], [(f"wc -l < {source}", f"{count}\n"), f"touch {count}"]),
        checks={"made": f"[ -e {count} ]", "right_kind": both(f"[ -d {count} ]", same(source, text))},
    )


def git_drop_branch(rng: Random, names: Names) -> Step:
    folder, file, branch = names.word(), names.file(), names.word()
    dropped = f"! git -C {folder} show-ref --verify -q refs/heads/{branch}"
    listing = lines([f"  {branch}", "* main"] if branch < "main" else ["* main", f"  {branch}"])
    return make_step(
        "git_drop_branch",
        SEARCH,
        rng.choice(
            (
                f"Delete the branch besides main in the git repository {folder}.",
                f"List the branches of the git repository {folder} and delete the one that is not main.",
            )
        ),
        files={f"{folder}/{file}": lines(names.words(1))},
        build=[repository(folder, f"git branch {branch}")],
        turns=[(f"git -C {folder} branch", listing), f"git -C {folder} branch -qD {branch}"],
        novice=mistake(rng, [(f"git -C {folder} branch", listing)], [f"rm -r {folder}"]),
        checks={
            "branch_gone": both(f"git -C {folder} rev-parse -q --verify main", dropped),
            "main_kept": both(dropped, f'[ "$(git -C {folder} log --format=%s main)" = start ]'),
        },
    )


def _shuffled(rng: Random, *said: str) -> str:
    order = list(said)
    rng.shuffle(order)
    return lines(order)


SKILLS = (
    Skill("note_delete", LOOKUP, note_delete, level=3, turns_min=2),
    Skill("note_create", LOOKUP, note_create, level=3, turns_min=2),
    Skill("note_copy", LOOKUP, note_copy, level=3, turns_min=2),
    Skill("note_write", LOOKUP, note_write, level=3, turns_min=2),
    Skill("trail_delete", LOOKUP, trail_delete, level=4, turns_min=3),
    Skill("find_and_delete", SEARCH, find_and_delete, level=3, turns_min=2),
    Skill("ask_program", SEARCH, ask_program, level=3, turns_min=2),
    Skill("pick_from_folder", SEARCH, pick_from_folder, level=3, turns_min=2),
    Skill("count_and_name", SEARCH, count_and_name, level=3, turns_min=2),
    Skill("git_drop_branch", SEARCH, git_drop_branch, level=3, turns_min=2),
)
