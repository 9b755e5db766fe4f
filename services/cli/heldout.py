"""The held-out sets as a run carries them: canonical archives, their digests, and the grams of their instructions."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from schemas.identity import digest_of, list_digest
from schemas.parts import HeldOutSet
from services.kernel.archive import FileEntry, pack, read_tree
from services.kernel.heldout.grams import GRAM_WORDS, HeldOutText, build_grams, words
from services.kernel.heldout.near import near_environments, near_tasks
from services.kernel.skills.lexicon import RESERVED

Tasks = Mapping[str, Mapping[str, FileEntry]]
"""Files of each task directory, by its slug."""


@dataclass(frozen=True)
class HeldOut:
    sets: tuple[HeldOutSet, ...]
    archives: tuple[bytes, ...]
    grams: bytes


def held_out(gram_words: int = GRAM_WORDS) -> HeldOut:
    """Both shipped sets. Equal on every machine."""
    near, far = near_set(), far_set()
    archives = {name: [pack(dict(task)) for task in tasks.values()] for name, tasks in (("near", near), ("far", far))}
    sets = []
    for name, packed in archives.items():
        envs = tuple(digest_of(archive) for archive in packed)
        sets.append(HeldOutSet(name=name, digest=list_digest(envs), envs=envs))
    grams = build_grams(
        [
            HeldOutText(_instructions(near), own_words=near_words()),
            HeldOutText(_instructions(far)),
        ],
        gram_words=gram_words,
    )
    return HeldOut(tuple(sets), tuple(archive for packed in archives.values() for archive in packed), grams)


def near_set() -> Tasks:
    return {
        slug: {path: FileEntry(spec.content, spec.mode == 0o755) for path, spec in task.items()}
        for slug, task in near_environments().items()
    }


def far_set() -> Tasks:
    with as_file(files("services.kernel.heldout").joinpath("far")) as root:
        return {folder.name: read_tree(folder) for folder in sorted(Path(root).iterdir()) if folder.is_dir()}


def near_words() -> frozenset[str]:
    """The reserved words that `near` really draws."""
    said = {word for task in near_tasks() for word in words(task.instruction)}
    return frozenset(said) & {word for reserved in RESERVED for word in words(reserved)}


def _instructions(tasks: Tasks) -> tuple[str, ...]:
    return tuple(task["instruction.md"].content.decode() for task in tasks.values())
