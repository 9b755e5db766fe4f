"""The near held-out set is frozen, evenly spread, and out of everybody else's reach."""

import ast
import json
import re
from collections import Counter
from pathlib import Path
from random import Random

import services.kernel.heldout.near as near
from services.kernel.heldout.near import NEAR_COUNT, files_digest, near_environments, near_tasks
from services.kernel.skills.catalogue import FAMILIES, SKILLS
from services.kernel.skills.compose import Task, compose
from services.kernel.skills.lexicon import RESERVED, TRAIN, Names

MAY_NAME_RESERVED = {
    "kernel/skills/lexicon.py": "holds them",
    "kernel/heldout/near.py": "draws them",
    "trainer/learner/demonstrations.py": "refuses random letter strings that hold one",
    "cli/heldout.py": "tells shared template text from held-out text",
}
SERVICES = Path(near.__file__).parents[2]


def test_near_set_is_the_pinned_one() -> None:
    pinned = json.loads((Path(near.__file__).parent / "near_digest.json").read_text())
    environments = near_environments()
    assert pinned == {"count": len(environments), "sha256": files_digest(environments)}


def test_digest_differs_when_one_byte_or_mode_differs() -> None:
    environments = near_environments(2)
    before = files_digest(environments)
    spec = environments["near-001"]["instruction.md"]
    environments["near-001"]["instruction.md"] = type(spec)(spec.content + b" ")
    assert files_digest(environments) != before
    environments["near-001"]["instruction.md"] = type(spec)(spec.content, 0o755)
    assert files_digest(environments) != before


def test_near_set_covers_every_skill_evenly_with_a_third_of_two_steps() -> None:
    tasks = near_tasks()
    assert len(tasks) == NEAR_COUNT
    assert Counter(len(task.steps) for task in tasks) == {1: 86, 2: 42}
    used = Counter(skill for task in tasks for skill in task.skills)
    assert set(used) == set(SKILLS)
    assert max(used.values()) - min(used.values()) <= 2
    assert {family for task in tasks for family in task.families} == set(FAMILIES)
    assert len({task.instruction for task in tasks}) == NEAR_COUNT


def test_near_set_uses_reserved_words_and_training_never_does() -> None:
    held_out = {word for task in near_tasks() for word in re.findall("[a-z]+", _text(task))}
    assert held_out & set(TRAIN) == set()
    assert len(held_out & set(RESERVED)) == len(RESERVED)
    seen: set[str] = set()
    for seed in range(1500):
        rng = Random(seed)
        task = compose(rng, rng.sample(sorted(SKILLS), 2), Names(rng), distractors=1)
        seen |= set(re.findall("[a-z]+", _text(task)))
    assert seen & set(RESERVED) == set()
    assert len(seen & set(TRAIN)) == len(TRAIN)


def test_no_other_module_names_the_reserved_words() -> None:
    takers = set()
    for path in SERVICES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            named = isinstance(node, ast.Name) and node.id in {"RESERVED", "_RESERVED"}
            reached = isinstance(node, ast.Attribute) and node.attr in {"RESERVED", "_RESERVED"}
            imported = isinstance(node, ast.ImportFrom) and any(alias.name == "RESERVED" for alias in node.names)
            if named or reached or imported:
                takers.add(path.relative_to(SERVICES).as_posix())
    assert {"kernel/skills/lexicon.py", "kernel/heldout/near.py"} <= takers <= set(MAY_NAME_RESERVED)


def _text(task: Task) -> str:
    said = [turn.command + " " + turn.output for turn in (*task.turns, *task.novice([True] * len(task.steps)))]
    paths = [path + " " + spec.content.decode("latin-1") for path, spec in task.files.items()]
    return "\n".join([task.instruction, *task.build, *said, *paths])
