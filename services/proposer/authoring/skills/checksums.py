"""Checksums: write them, find what changed, find a file by its own."""

import hashlib
from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, both, lines, make_step, same
from services.proposer.authoring.skills.derive import derived

FAMILY = "checksums"


def _folder(names: Names, count: int) -> tuple[str, dict[str, str]]:
    """A folder with files of one or two words, by path, sorted."""
    folder = names.word()
    return folder, dict(sorted((f"{folder}/{names.file()}", lines(names.words(2))) for _ in range(count)))


def _sum(text: str, algorithm: str = "sha256") -> str:
    return hashlib.new(algorithm, text.encode()).hexdigest()


def _sums(files: dict[str, str]) -> str:
    return lines([f"{_sum(text)}  {path}" for path, text in files.items()])


def checksum_list(rng: Random, names: Names) -> Step:
    folder, files = _folder(names, 3)
    target = names.file()
    return derived(
        rng,
        "checksum_list",
        FAMILY,
        (
            f"Write the SHA-256 checksums of all files in the folder {folder} to {target}, as sha256sum prints them.",
            f"Save what sha256sum says of every file in the folder {folder}, in order of their names, to {target}.",
        ),
        files=files,
        target=target,
        right=_sums(files),
        turns=[f"sha256sum {folder}/* > {target}"],
        novice=[f"md5sum {folder}/* > {target}"],
    )


def checksum_changed(rng: Random, names: Names) -> Step:
    folder, files = _folder(names, 3)
    record, target = names.file("sums"), names.file()
    recorded = _sums(files)
    odd = rng.choice(list(files))
    files[odd] = lines(names.words(2))
    return derived(
        rng,
        "checksum_changed",
        FAMILY,
        (
            f"Find the file in the folder {folder} that no longer has its SHA-256 checksum in {record} and "
            f"write its path to {target}.",
            f"Write to {target} the path of the one file that fails when the checksums in {record} are verified.",
        ),
        files={**files, record: recorded},
        target=target,
        right=f"{odd}\n",
        turns=[f"(sha256sum -c {record} 2> /dev/null || :) | sed -n 's/: FAILED$//p' > {target}"],
        novice=[f"(sha256sum -c {record} 2> /dev/null || :) > {target}"],
    )


def checksum_pick(rng: Random, names: Names) -> Step:
    folder, files = _folder(names, 3)
    target = names.file()
    wanted = rng.choice(list(files))
    start = _sum(files[wanted])[:12]
    return derived(
        rng,
        "checksum_pick",
        FAMILY,
        (
            f"Copy the file in the folder {folder} whose SHA-256 checksum starts with {start} to {target}.",
            f"Find the file with the SHA-256 checksum {start}... in the folder {folder} and copy it to {target}.",
        ),
        files=files,
        target=target,
        right=files[wanted],
        turns=[
            (f"sha256sum {folder}/* | grep ^{start}", f"{_sum(files[wanted])}  {wanted}\n"),
            f"cp {wanted} {target}",
        ],
        novice=[f"cat {folder}/* > {target}"],
    )


def checksum_twin(rng: Random, names: Names) -> Step:
    folder, files = _folder(names, 4)
    twins = sorted(rng.sample(list(files), 2))
    files[twins[1]] = files[twins[0]]
    rest = " && ".join(same(path, text) for path, text in files.items() if path != twins[1])
    gone = f"[ ! -e {twins[1]} ]"
    left = f'[ "$(ls {folder} | wc -l)" = 3 ]'
    return make_step(
        "checksum_twin",
        FAMILY,
        rng.choice(
            (
                f"Delete the later by name of the two files in the folder {folder} that have the same content.",
                f"Find the two equal files in the folder {folder} and delete the one whose name comes last.",
            )
        ),
        files=files,
        turns=[
            (
                f"sha256sum {folder}/* | sort | uniq -w64 -D",
                lines([f"{_sum(files[path])}  {path}" for path in twins]),
            ),
            f"rm {twins[1]}",
        ],
        novice=[f"rm {twins[0]}"],
        checks={"gone": both(left, gone), "rest_kept": both(gone, rest)},
    )


SKILLS = (
    Skill("checksum_list", FAMILY, checksum_list, level=2),
    Skill("checksum_changed", FAMILY, checksum_changed, level=3),
    Skill("checksum_pick", FAMILY, checksum_pick, level=3, turns_min=2),
    Skill("checksum_twin", FAMILY, checksum_twin, level=3, turns_min=2),
)
