"""The `near` held-out set: skills as in training, words and seeds that no proposer and no cold start can draw.

Two of three tasks have one step, the third has two. Skills take turns, so each occurs about equally often.
"""

import hashlib
from collections.abc import Iterator, Mapping
from random import Random

from services.kernel.skills.catalogue import SKILLS
from services.kernel.skills.compose import Task, compose
from services.kernel.skills.harbor_files import harbor_files
from services.kernel.skills.lexicon import RESERVED, Names, seeded
from services.kernel.skills.step import FileSpec

NEAR_COUNT = 128
_PURPOSE = "held-out near"
"""Seeds of this purpose are reserved."""


def near_tasks(count: int = NEAR_COUNT) -> list[Task]:
    """The first `count` tasks of an endless deterministic sequence."""
    turns = _skills_in_turn(seeded(_PURPOSE, "order"))
    tasks = []
    for index in range(count):
        chosen = [next(turns)]
        if index % 3 == 2:
            chosen.append(next(name for name in turns if name != chosen[0]))
        rng = seeded(_PURPOSE, index)
        tasks.append(compose(rng, chosen, Names(rng, RESERVED), distractors=rng.randint(0, 2)))
    return tasks


def near_environments(count: int = NEAR_COUNT) -> dict[str, dict[str, FileSpec]]:
    """Files of each Harbor task directory by slug (`near-000` ...)."""
    return {
        slug: harbor_files(task, slug=slug)
        for slug, task in ((f"near-{index:03}", task) for index, task in enumerate(near_tasks(count)))
    }


def files_digest(environments: Mapping[str, Mapping[str, FileSpec]]) -> str:
    """sha256 hex over the sorted lines `path mode sha256` of every file."""
    listing = [
        f"{slug}/{path} {spec.mode:o} {hashlib.sha256(spec.content).hexdigest()}\n"
        for slug, files in environments.items()
        for path, spec in files.items()
    ]
    return hashlib.sha256("".join(sorted(listing)).encode()).hexdigest()


def _skills_in_turn(rng: Random) -> Iterator[str]:
    names = list(SKILLS)
    while True:
        rng.shuffle(names)
        yield from names
