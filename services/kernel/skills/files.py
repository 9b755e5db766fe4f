"""Copy, rename, move, delete, make folders."""

from random import Random

from services.kernel.skills.lexicon import EXTENSIONS, Names
from services.kernel.skills.step import Skill, Step, both, lines, make_step, mistake, same

FAMILY = "files"


def copy_file(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    text = lines(names.words(2))
    return make_step(
        "copy_file",
        FAMILY,
        rng.choice(
            (
                f"Copy {source} to {target}.",
                f"Make a copy of {source} named {target}.",
                f"Save a copy of {source} as {target}.",
            )
        ),
        files={source: text},
        turns=[f"cp {source} {target}"],
        novice=[f"mv {source} {target}"],
        checks={"copied": same(target, text), "source_kept": both(f"[ -e {target} ]", same(source, text))},
    )


def rename_file(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    text = lines(names.words(2))
    return make_step(
        "rename_file",
        FAMILY,
        rng.choice(
            (
                f"Rename {source} to {target}.",
                f"Change the name of {source} to {target}.",
                f"Give {source} the new name {target}.",
            )
        ),
        files={source: text},
        turns=[f"mv {source} {target}"],
        novice=[f"cp {source} {target}"],
        checks={"new_name": same(target, text), "old_name_gone": both(f"[ -e {target} ]", f"[ ! -e {source} ]")},
    )


def move_into(rng: Random, names: Names) -> Step:
    source, folder, neighbour = names.file(), names.word(), names.file()
    text, other = lines(names.words(2)), lines(names.words(1))
    return make_step(
        "move_into",
        FAMILY,
        rng.choice((f"Move {source} into the folder {folder}.", f"Put {source} into the folder {folder}.")),
        files={source: text, f"{folder}/{neighbour}": other},
        turns=[f"mv {source} {folder}/"],
        novice=[f"cp {source} {folder}/"],
        checks={
            "in_folder": same(f"{folder}/{source}", text),
            "not_left_behind": both(f"[ -e {folder}/{source} ]", f"[ ! -e {source} ]"),
        },
    )


def delete_file(rng: Random, names: Names) -> Step:
    word = names.word()
    gone, kept = rng.sample(EXTENSIONS, 2)
    target, sibling = f"{word}.{gone}", f"{word}.{kept}"
    text = lines(names.words(2))
    return make_step(
        "delete_file",
        FAMILY,
        rng.choice((f"Delete {target}.", f"Remove the file {target}.", f"Get rid of {target}.")),
        files={target: lines(names.words(1)), sibling: text},
        turns=[f"rm {target}"],
        novice=mistake(
            rng, [f"rm {word}.*"], [(f"rm {word}", f"rm: cannot remove '{word}': No such file or directory\n")]
        ),
        checks={"gone": f"[ ! -e {target} ]", "sibling_kept": both(f"[ ! -e {target} ]", same(sibling, text))},
    )


def make_folders(rng: Random, names: Names) -> Step:
    outer, inner = names.words(2)
    return make_step(
        "make_folders",
        FAMILY,
        rng.choice((f"Make the folder {outer}/{inner}.", f"Create a folder {inner} inside a new folder {outer}.")),
        turns=[f"mkdir -p {outer}/{inner}"],
        novice=mistake(
            rng,
            [
                (
                    f"mkdir {outer}/{inner}",
                    f"mkdir: cannot create directory \N{LEFT SINGLE QUOTATION MARK}{outer}/{inner}"
                    "\N{RIGHT SINGLE QUOTATION MARK}: No such file or directory\n",
                )
            ],
            [f"mkdir {outer}"],
        ),
        checks={"outer": f"[ -d {outer} ]", "inner": f"[ -d {outer}/{inner} ]"},
    )


def copy_folder(rng: Random, names: Names) -> Step:
    source, target, file = names.word(), names.word(), names.file()
    text = lines(names.words(2))
    return make_step(
        "copy_folder",
        FAMILY,
        rng.choice((f"Copy the folder {source} to {target}.", f"Make a copy of the folder {source} named {target}.")),
        files={f"{source}/{file}": text},
        turns=[f"cp -r {source} {target}"],
        novice=mistake(
            rng,
            [(f"cp {source} {target}", f"cp: -r not specified; omitting directory '{source}'\n")],
            [f"mv {source} {target}"],
        ),
        checks={
            "copied": same(f"{target}/{file}", text),
            "source_kept": both(f"[ -e {target}/{file} ]", same(f"{source}/{file}", text)),
        },
    )


SKILLS = (
    Skill("copy_file", FAMILY, copy_file),
    Skill("rename_file", FAMILY, rename_file),
    Skill("move_into", FAMILY, move_into),
    Skill("delete_file", FAMILY, delete_file),
    Skill("make_folders", FAMILY, make_folders),
    Skill("copy_folder", FAMILY, copy_folder),
)
