"""What holds of the proposer's own skills before any shell runs."""

import re
from itertools import combinations, product
from random import Random

import pytest

from schemas.rules import likeness
from services.kernel.archive import FileEntry
from services.kernel.harbor.task import read_task
from services.kernel.skills.compose import compose
from services.kernel.skills.harbor_files import harbor_files
from services.kernel.skills.lexicon import EXTENSIONS, RESERVED, TRAIN, Names
from services.proposer.authoring.skills.catalogue import CORE, WIDE, WIDER
from services.validator.gates.gate import Case
from services.validator.gates.likeness import sketch_of

LETTERS = "bcdfghjkmnpqrstvwxz"
UNHEARD = ["".join(letters) for letters in product("qxzj", LETTERS, "vwk", LETTERS)]
"""Letter strings that are no words: what a text holds besides them comes from the skill itself."""


def _texts(skill: str, seed: int, words: list[str]) -> str:
    rng = Random(seed)
    task = compose(rng, [skill], Names(rng, words), catalogue=WIDER)
    said = [turn.command + " " + turn.output for turn in (*task.turns, *task.novice([True]))]
    return "\n".join([task.instruction, *said, *(spec.content.decode("latin-1") for spec in task.files.values())])


def _files(skill: str, seed: int) -> dict[str, FileEntry]:
    rng = Random(f"{skill}-{seed}")
    files = harbor_files(compose(rng, [skill], Names(rng), distractors=1, catalogue=WIDER))
    return {path: FileEntry(spec.content, spec.mode == 0o755) for path, spec in files.items()}


def test_the_wide_catalogue_has_every_core_skill_and_over_twenty_families_of_three_or_more() -> None:
    assert len(WIDE.families) >= 22
    assert len(set(WIDE.families) - set(CORE.families)) >= 10
    assert all(len(WIDE.of_family(family)) >= 3 for family in WIDE.families)
    assert len(WIDE.skills) == len(CORE.skills) + len(WIDER)
    assert tuple(WIDE.skills)[: len(CORE.skills)] == tuple(CORE.skills)
    assert WIDE.of_check("cron_move__right") == "cron_move"
    assert CORE.of_check("cron_move__right") is None


@pytest.mark.parametrize("skill", WIDER)
def test_a_wider_skills_own_words_are_not_in_the_lexicon(skill: str) -> None:
    own = {word for seed in range(12) for word in re.findall("[a-z]+", _texts(skill, seed, UNHEARD))}
    assert own & set(TRAIN + RESERVED) == set()


@pytest.mark.parametrize("skill", WIDER)
def test_a_wider_skill_speaks_in_one_sentence_of_two_wordings_and_draws_alike_from_one_seed(skill: str) -> None:
    phrasings = set()
    drawn = {*TRAIN, *EXTENSIONS}
    for seed in range(20):
        rng = Random(seed)
        step = WIDER[skill].draw(rng, Names(rng))
        assert (step.skill, step.family) == (skill, WIDER[skill].family)
        assert re.fullmatch(r"[A-Z][^\n]*\.", step.instruction)
        assert len(step.turns) == WIDER[skill].turns_min
        assert len(step.checks) >= 2
        assert {WIDE.of_check(check.name) for check in step.checks} == {skill}
        assert len(step.files) <= 4
        phrasings.add(
            re.sub(r"[a-z]+", lambda word: "_" if word[0] in drawn else word[0], re.sub(r"\d", "_", step.instruction))
        )
    assert len(phrasings) >= 2
    assert _texts(skill, 3, list(TRAIN)) == _texts(skill, 3, list(TRAIN)) != _texts(skill, 4, list(TRAIN))


@pytest.mark.parametrize("skill", WIDER)
def test_a_wider_skills_harbor_task_reads_without_a_problem(skill: str) -> None:
    reading = read_task(_files(skill, 0))
    assert (reading.problems, reading.unsupported, reading.implicit) == ((), (), ())
    assert reading.task is not None


def test_no_two_drawn_tasks_are_near_duplicates_for_the_gate() -> None:
    sketches = {(skill, seed): sketch_of(_files(skill, seed)) for skill in WIDER for seed in range(3)}
    threshold = Case.duplicate_similarity
    alike = [
        (one, other)
        for (one, first), (other, second) in combinations(sketches.items(), 2)
        if likeness(first, second) >= threshold
    ]
    assert alike == []
