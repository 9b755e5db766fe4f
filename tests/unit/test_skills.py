"""What holds of skills, lexicon and composition before any shell runs."""

import re
import tomllib
from itertools import product
from random import Random

import pytest

from services.kernel.archive import FileEntry
from services.kernel.harbor.task import read_task
from services.kernel.skills.catalogue import FAMILIES, SKILLS, skill_of_check, skills_of
from services.kernel.skills.compose import compose
from services.kernel.skills.harbor_files import harbor_files
from services.kernel.skills.lexicon import EXTENSIONS, RESERVED, TRAIN, Names, NamesExhaustedError

LETTERS = "bcdfghjkmnpqrstvwxz"
UNHEARD = ["".join(letters) for letters in product("qxzj", LETTERS, "vwk", LETTERS)]
"""Letter strings of one length that are no words: what a text holds besides them comes from the skill itself."""


def _texts(skill: str, seed: int, words: list[str]) -> str:
    rng = Random(seed)
    task = compose(rng, [skill], Names(rng, words))
    said = [turn.command + " " + turn.output for turn in (*task.turns, *task.novice([True]))]
    return "\n".join([task.instruction, *said, *(spec.content.decode("latin-1") for spec in task.files.values())])


def test_lexicon_words_are_plain_distinct_and_never_inside_one_another() -> None:
    words = TRAIN + RESERVED
    assert len(set(words)) == len(words)
    assert len(TRAIN) >= 300
    assert len(RESERVED) >= 60
    assert all(re.fullmatch("[a-z]{3,7}", word) for word in words)
    assert [(a, b) for a in words for b in words if a != b and a in b] == []


@pytest.mark.parametrize("skill", SKILLS)
def test_a_skills_own_words_are_not_in_the_lexicon(skill: str) -> None:
    own = {word for seed in range(12) for word in re.findall("[a-z]+", _texts(skill, seed, UNHEARD))}
    assert own & set(TRAIN + RESERVED) == set()


@pytest.mark.parametrize("skill", SKILLS)
def test_a_skill_draws_the_same_step_from_the_same_seed_and_other_words_from_another(skill: str) -> None:
    assert _texts(skill, 3, list(TRAIN)) == _texts(skill, 3, list(TRAIN))
    assert _texts(skill, 3, list(TRAIN)) != _texts(skill, 4, list(TRAIN))


@pytest.mark.parametrize("skill", SKILLS)
def test_a_skill_speaks_in_one_plain_sentence_and_names_its_checks_after_itself(skill: str) -> None:
    phrasings = set()
    drawn = {*TRAIN, *EXTENSIONS}
    for seed in range(20):
        rng = Random(seed)
        step = SKILLS[skill].draw(rng, Names(rng))
        assert re.fullmatch(r"[A-Z][^\n]*\.", step.instruction)
        assert len(step.turns) == SKILLS[skill].turns_min
        assert len(step.checks) >= 2
        assert {skill_of_check(check.name) for check in step.checks} == {skill}
        assert all(re.fullmatch(r"[a-z0-9_]+__[a-z0-9_]+", check.name) for check in step.checks)
        assert all(len(turn.command) <= 64 and "\n" not in turn.command for turn in step.turns)
        phrasings.add(
            re.sub(
                r"\d|[a-z]+",
                lambda found: "_" if found[0] in drawn or found[0].isdigit() else found[0],
                step.instruction,
            )
        )
    assert len(phrasings) >= 2


@pytest.mark.parametrize("skill", SKILLS)
def test_a_skills_harbor_task_reads_without_a_problem_and_leaves_no_limit_to_a_default(skill: str) -> None:
    rng = Random(skill)
    files = harbor_files(compose(rng, [skill], Names(rng), distractors=1))
    reading = read_task({path: FileEntry(spec.content, spec.mode == 0o755) for path, spec in files.items()})
    assert (reading.problems, reading.unsupported, reading.implicit) == ((), (), ())
    assert reading.task is not None


def test_families_are_many_and_two_of_them_always_need_what_an_earlier_command_printed() -> None:
    assert len(FAMILIES) >= 10
    for family in ("lookup", "search"):
        assert len(skills_of(family)) >= 4
        for name in skills_of(family):
            assert SKILLS[name].turns_min >= 2
            rng = Random(name)
            *_, before, last = SKILLS[name].draw(rng, Names(rng)).turns
            read = set(re.findall(r"[a-z0-9]+", before.output))
            assert read & set(re.findall(r"[a-z0-9]+", last.command)) - set(re.findall(r"[a-z0-9]+", before.command))


def test_composition_joins_sentences_and_refuses_what_would_collide() -> None:
    rng = Random(5)
    task = compose(rng, ["write_line", "make_folders", "copy_file"], Names(rng), distractors=2)
    assert task.instruction.count(" Then ") == 2
    assert task.skills == ("write_line", "make_folders", "copy_file")
    assert task.families == ("text", "files")
    assert len(task.files) == 3
    for skills, distractors in (
        (["copy_file"] * 2, 0),
        ([], 0),
        (list(SKILLS)[:5], 0),
        (["fly"], 0),
        (["copy_file"], 9),
    ):
        with pytest.raises(ValueError, match=r"steps|twice|unknown|distractors"):
            compose(rng, skills, Names(rng), distractors=distractors)
    with pytest.raises(NamesExhaustedError, match="no word left"):
        compose(rng, ["copy_file"], Names(rng, TRAIN[:3]))


def test_a_mistake_touches_only_the_marked_steps() -> None:
    rng = Random(6)
    task = compose(rng, ["rename_file", "sort_numbers"], Names(rng))
    first, second = task.steps
    assert task.novice([False, True]) == (*first.turns, *second.novice)
    assert task.novice([False, False]) == task.turns


def test_harbor_files_state_every_limit_and_keep_words_out_of_test_names() -> None:
    rng = Random(7)
    task = compose(rng, ["git_commit", "make_runnable"], Names(rng), distractors=1)
    files = harbor_files(task)
    manifest = tomllib.loads(files["task.toml"].content.decode())
    assert manifest["schema_version"] == "1.4"
    assert re.fullmatch(r"envwheel/git-commit-make-runnable-[0-9a-f]{8}", manifest["task"]["name"])
    assert manifest["agent"] == {"timeout_sec": 300.0}
    assert manifest["verifier"] == {"timeout_sec": 60.0, "environment_mode": "shared"}
    assert manifest["environment"] == {
        "build_timeout_sec": 60.0,
        "os": "linux",
        "cpus": 1,
        "memory_mb": 512,
        "storage_mb": 256,
        "gpus": 0,
        "workdir": "/app",
        "network_mode": "no-network",
    }
    dockerfile = files["environment/Dockerfile"].content.decode().splitlines()
    assert dockerfile[:3] == ["FROM envwheel/base:1", "WORKDIR /app", "COPY files/ /app/"]
    assert len([line for line in dockerfile[3:] if line.startswith("RUN ")]) == len(task.build) == len(dockerfile) - 3
    assert {path: spec.mode for path, spec in files.items() if spec.mode != 0o644} == {
        "solution/solve.sh": 0o755,
        "tests/test.sh": 0o755,
    }
    assert all(b"\r" not in spec.content for spec in files.values())
    with pytest.raises(ValueError, match="no slug"):
        harbor_files(task, slug="../x")
