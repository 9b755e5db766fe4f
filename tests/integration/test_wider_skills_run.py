"""The proposer's own skills in a real shell, four a task, and through all gates."""

import os
from itertools import product
from pathlib import Path
from random import Random

import pytest

from schemas.outcomes import GateOutcome
from services.kernel.archive import FileEntry
from services.kernel.skills.compose import STEPS_MAX, Task, compose
from services.kernel.skills.harbor_files import harbor_files
from services.kernel.skills.lexicon import Names
from services.proposer.authoring.skills.catalogue import WIDER
from services.validator.gates.run import GATES, run_gates
from tests.support.bash_box import run_and_grade
from tests.support.shop import case_of, open_shop

ALL = "ENVWHEEL_ALL_SKILLS" in os.environ
SEEDS = range(3)
SPREAD = [name for place in range(5) for name in list(WIDER)[place::5]]
"""Another order, so that skills of one module stand apart."""
FOURS = [SPREAD[start : start + STEPS_MAX] for start in range(0, len(SPREAD), STEPS_MAX)]
SAMPLE = [(four, 0) for four in FOURS[::9]]


def _task(skills: list[str], seed: int) -> Task:
    rng = Random(f"{'+'.join(skills)}-{seed}")
    return compose(rng, skills, Names(rng), distractors=1, catalogue=WIDER)


@pytest.mark.parametrize("skills", FOURS, ids="+".join)
def test_references_earn_all_beginners_lose_in_every_step_and_the_idle_get_nothing(
    skills: list[str], tmp_path: Path
) -> None:
    task = _task(skills, 0)
    files = harbor_files(task)
    right = run_and_grade(tmp_path / "right", files, [turn.command for turn in task.turns])
    assert right.outputs == tuple(turn.output for turn in task.turns)
    assert right.tests == {check.name: True for check in task.checks}
    mistaken = task.novice([True] * len(skills))
    wrong = run_and_grade(tmp_path / "wrong", files, [turn.command for turn in mistaken])
    assert wrong.outputs == tuple(turn.output for turn in mistaken)
    lost = {name.partition("__")[0] for name, passed in wrong.tests.items() if not passed}
    assert lost == set(skills)
    idle = run_and_grade(tmp_path / "idle", files, [])
    assert not any(idle.tests.values()), idle.tests


@pytest.mark.parametrize(("skills", "seed"), list(product(FOURS, SEEDS)) if ALL else SAMPLE, ids=str)
async def test_tasks_of_wider_skills_pass_every_gate(skills: list[str], seed: int, tmp_path: Path) -> None:
    """ENVWHEEL_ALL_SKILLS=1: every skill with three seeds, which takes many minutes; else two tasks."""
    written = harbor_files(_task(skills, seed))
    files = {path: FileEntry(spec.content, spec.mode == 0o755) for path, spec in written.items()}
    async with open_shop(tmp_path) as shop:
        report = await run_gates(case_of(shop, files))
    assert {gate.name: found.detail for gate, found in report.findings if found.outcome is not GateOutcome.passed} == {}
    assert len(report.findings) == len(GATES)
