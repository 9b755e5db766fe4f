"""The grams of the decontamination gate: they find held-out text, and let honest tasks with the same wording pass."""

from random import Random

import pytest

from services.cli.heldout import far_set, held_out, near_set
from services.kernel.heldout.grams import (
    COMMON_MIN,
    GRAM_WORDS,
    GramsError,
    HeldOutText,
    build_grams,
    read_grams,
    shared_grams,
    words,
)
from services.kernel.skills.catalogue import SKILLS
from services.kernel.skills.compose import compose
from services.kernel.skills.lexicon import Names

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"


def found(instruction: str, *sets: HeldOutText) -> list[str]:
    return shared_grams(instruction, read_grams(build_grams(sets)))


def test_words_are_lower_case_letters_and_digits() -> None:
    said = words("Sort `Plum.TXT` into A-9,\nthen ﬁle_x!")
    assert " ".join(said) == "sort plum txt into a 9 then file x"


def test_a_shared_13_gram_is_found_whatever_stands_around_it() -> None:
    held = HeldOutText((LONG,))
    assert len(LONG.split()) == GRAM_WORDS + 1
    assert found("Please: ONE, two three four five six seven eight nine ten eleven twelve thirteen.", held)
    assert len(found(f"before {LONG} after", held)) == 2
    assert found(LONG.replace("seven", "7"), held) == []


def test_a_short_instruction_counts_whole() -> None:
    held = HeldOutText(("Delete plum.txt now",))
    assert found("First, delete plum txt now, please.", held) == ["delete plum txt now"]
    assert found("Delete plum.txt later", held) == []


def test_wording_that_many_tasks_share_is_no_contamination() -> None:
    shared = "in this task you will find some files below the folder app and"
    tasks = tuple(f"{shared} must number {each} them" for each in range(COMMON_MIN))
    assert found(f"{shared} may delete them", HeldOutText(tasks)) == []
    assert found(f"{shared} may delete them", HeldOutText(tasks[: COMMON_MIN - 1])) != []


def test_template_text_without_an_own_word_is_removed() -> None:
    text = f"{LONG} walrus"
    assert found(LONG, HeldOutText((text,), own_words=frozenset({"walrus"}))) == []
    assert len(found(text, HeldOutText((text,), own_words=frozenset({"walrus"})))) == 1


def test_every_held_out_instruction_is_found_by_its_own_grams() -> None:
    grams = read_grams(held_out().grams)
    for tasks in (near_set(), far_set()):
        for slug, task in tasks.items():
            assert shared_grams(task["instruction.md"].content.decode(), grams), slug


def test_honest_tasks_of_the_same_templates_pass() -> None:
    grams = read_grams(held_out().grams)
    for seed in range(500):
        rng = Random(seed)
        skills = rng.sample(list(SKILLS), rng.randint(1, 4))
        instruction = compose(rng, skills, Names(rng), distractors=1).instruction
        assert shared_grams(instruction, grams) == [], instruction


def test_equal_sets_give_equal_bytes_and_garbage_is_refused() -> None:
    held = HeldOutText((LONG, "short one"))
    assert build_grams([held]) == build_grams([held])
    with pytest.raises(GramsError, match="not a set of grams"):
        read_grams(b"{}")
    with pytest.raises(GramsError, match="version 2"):
        read_grams(build_grams([held]).replace(b'"version":1', b'"version":2'))
