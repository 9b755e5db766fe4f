"""Every skill in a real shell: what the reference prints and earns, and what a beginner and an idle agent earn."""

import json
from pathlib import Path
from random import Random

import pytest

from services.kernel.heldout.near import near_environments, near_tasks
from services.kernel.skills.catalogue import FAMILIES, SKILLS, skills_of
from services.kernel.skills.compose import Task, compose
from services.kernel.skills.harbor_files import harbor_files
from services.kernel.skills.lexicon import Names
from tests.support.bash_box import run_and_grade

SEEDS = range(2)


def _task(skill: str, seed: int) -> Task:
    rng = Random(f"{skill}-{seed}")
    return compose(rng, [skill], Names(rng), distractors=seed % 3)


@pytest.mark.parametrize("skill", SKILLS)
def test_reference_of_a_skill_prints_exactly_what_it_says_and_earns_all(skill: str, tmp_path: Path) -> None:
    for seed in SEEDS:
        task = _task(skill, seed)
        result = run_and_grade(tmp_path / str(seed), harbor_files(task), [turn.command for turn in task.turns])
        assert result.outputs == tuple(turn.output for turn in task.turns)
        assert result.tests == {check.name: True for check in task.checks}
        assert result.reward == 1.0


@pytest.mark.parametrize("skill", SKILLS)
def test_a_beginners_mistake_prints_exactly_what_it_says_and_never_earns_all(skill: str, tmp_path: Path) -> None:
    for seed in SEEDS:
        task = _task(skill, seed)
        turns = task.novice([True])
        result = run_and_grade(tmp_path / str(seed), harbor_files(task), [turn.command for turn in turns])
        assert result.outputs == tuple(turn.output for turn in turns)
        assert result.reward < 1.0


@pytest.mark.parametrize("skill", SKILLS)
def test_an_untouched_environment_passes_no_check(skill: str, tmp_path: Path) -> None:
    result = run_and_grade(tmp_path, harbor_files(_task(skill, 0)), [])
    assert not any(result.tests.values()), result.tests
    assert result.reward == 0.0


@pytest.mark.parametrize("seed", range(6))
def test_composed_steps_do_not_disturb_each_other_and_share_the_reward(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    chosen = [rng.choice(skills_of(family)) for family in rng.sample(FAMILIES, 4)]
    task = compose(rng, chosen, Names(rng), distractors=3)
    files = harbor_files(task)
    result = run_and_grade(tmp_path / "all", files, [turn.command for turn in task.turns])
    assert (result.reward, result.outputs) == (1.0, tuple(turn.output for turn in task.turns))
    half = [turn.command for step in task.steps[:2] for turn in step.turns]
    result = run_and_grade(tmp_path / "half", files, half)
    done = {check.name for step in task.steps[:2] for check in step.checks}
    assert result.tests == {check.name: check.name in done for check in task.checks}
    assert result.reward == round(len(done) / len(task.checks), 4)
    summary = json.loads(result.ctrf)["results"]["summary"]
    assert (summary["tests"], summary["passed"], summary["failed"]) == (
        len(task.checks),
        len(done),
        len(task.checks) - len(done),
    )


def test_every_near_task_gives_its_reference_all_and_an_idle_agent_nothing(tmp_path: Path) -> None:
    environments = near_environments()
    for (slug, files), task in zip(environments.items(), near_tasks(), strict=True):
        result = run_and_grade(tmp_path / slug, files, [turn.command for turn in task.turns])
        assert (result.reward, result.outputs) == (1.0, tuple(turn.output for turn in task.turns)), slug
        assert run_and_grade(tmp_path / f"{slug}-idle", files, []).reward == 0.0, slug


def test_the_verifier_writes_a_reward_when_the_workspace_is_gone_or_a_pipe_stands_in(
    tmp_path: Path,
) -> None:
    task = _task("copy_file", 0)
    target = task.turns[0].command.split()[2]
    result = run_and_grade(tmp_path / "pipe", harbor_files(task), [f"mkfifo {target}"])
    assert result.tests == {"copy_file__copied": False, "copy_file__source_kept": True}
    result = run_and_grade(tmp_path / "gone", harbor_files(task), ["rm -rf /app/* && chmod 000 /app"])
    assert result.reward == 0.0


def test_a_copy_made_as_a_link_earns_nothing_for_the_copy(tmp_path: Path) -> None:
    task = _task("copy_file", 0)
    _, source, target = task.turns[0].command.split()
    result = run_and_grade(tmp_path, harbor_files(task), [f"ln -s {source} {target}"])
    assert not result.tests["copy_file__copied"]
