"""Symbolic links: make, follow, mend, find those that lead nowhere."""

from itertools import pairwise
from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, both, lines, make_step, same
from services.proposer.authoring.skills.derive import derived

FAMILY = "links"


def link_make(rng: Random, names: Names) -> Step:
    folder, file, link = names.word(), names.file(), names.file()
    text = lines(names.words(2))
    points = f'[ "$(readlink {link})" = {folder}/{file} ]'
    return make_step(
        "link_make",
        FAMILY,
        rng.choice(
            (
                f"Make {link} a symbolic link to {folder}/{file} with that relative path.",
                f"Create a symbolic link named {link} that points to {folder}/{file} as written here.",
            )
        ),
        files={f"{folder}/{file}": text},
        turns=[f"ln -s {folder}/{file} {link}"],
        novice=[f"cp {folder}/{file} {link}"],
        checks={"points_there": points, "file_kept": both(f"[ -L {link} ]", same(f"{folder}/{file}", text))},
    )


def link_follow(rng: Random, names: Names) -> Step:
    folder, target = names.word(), names.file()
    first, *more = names.words(rng.randint(2, 4))
    file = names.file()
    chain = [first, *more, file]
    steps = [f"ln -s {after} {folder}/{link}" for link, after in pairwise(chain)]
    return derived(
        rng,
        "link_follow",
        FAMILY,
        (
            f"Follow the symbolic links from {folder}/{first} and write the name of the file at the end to {target}.",
            f"Write to {target} the name of the file that the chain of links starting at {folder}/{first} ends in.",
        ),
        files={f"{folder}/{file}": lines(names.words(2))},
        target=target,
        right=f"{file}\n",
        build=[" && ".join(steps)],
        turns=[f'basename "$(readlink -f {folder}/{first})" > {target}'],
        novice=[f"readlink {folder}/{first} > {target}"],
        kept=f'[ "$(readlink {folder}/{first})" = {chain[1]} ] && [ -f {folder}/{file} ]',
    )


def link_mend(rng: Random, names: Names) -> Step:
    link, file, gone, other = names.word(), names.file(), names.file(), names.file()
    text, other_text = lines(names.words(2)), lines(names.words(2))
    mended = f'[ "$(readlink {link})" = {file} ]'
    return make_step(
        "link_mend",
        FAMILY,
        rng.choice(
            (
                f"Change the broken symbolic link {link} so that it points to {file}.",
                f"Make the symbolic link {link}, which leads nowhere, point to {file}.",
            )
        ),
        files={file: text, other: other_text},
        build=[f"ln -s {gone} {link}"],
        turns=[f"ln -sfn {file} {link}"],
        novice=[f"ln -sfn {other} {link}"],
        checks={
            "points_there": mended,
            "rest_kept": both(f"[ -L {link} ] && [ -e {link} ]", f"{same(file, text)} && {same(other, other_text)}"),
        },
    )


def link_broken(rng: Random, names: Names) -> Step:
    folder, file, target = names.word(), names.file(), names.file()
    good, *broken = names.words(rng.randint(3, 4))
    made = [f"ln -s {file} {folder}/{good}", *(f"ln -s {names.file()} {folder}/{link}" for link in broken)]
    return derived(
        rng,
        "link_broken",
        FAMILY,
        (
            f"Write the paths of the broken symbolic links in the folder {folder} to {target}, sorted, one a line.",
            f"List the links in the folder {folder} that lead nowhere, by path and sorted, in {target}.",
        ),
        files={f"{folder}/{file}": lines(names.words(1))},
        target=target,
        right=lines(sorted(f"{folder}/{link}" for link in broken)),
        build=[" && ".join(rng.sample(made, len(made)))],
        turns=[f"find {folder} -xtype l | sort > {target}"],
        novice=[f"find {folder} -type l | sort > {target}"],
        kept=" && ".join(f"[ -L {folder}/{link} ]" for link in (good, *broken)),
    )


SKILLS = (
    Skill("link_make", FAMILY, link_make),
    Skill("link_follow", FAMILY, link_follow, level=2),
    Skill("link_mend", FAMILY, link_mend, level=2),
    Skill("link_broken", FAMILY, link_broken, level=2),
)
