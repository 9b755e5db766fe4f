"""How alike two tasks are: the same task in other words or under other names is found, another exercise is not."""

import re
from collections.abc import Callable
from random import Random

import pytest

from schemas.rules import SKETCH_DIGITS, SKETCH_PARTS, SKETCH_PLACES, likeness
from services.kernel.archive import FileEntry
from services.kernel.skills.catalogue import SKILLS
from services.validator.gates.likeness import EMPTY, sketch_of
from tests.support.harbor_tasks import greeting
from tests.support.shop import Files, composed

THRESHOLD = 0.8


def rewritten(files: Files, folder: str, old: bytes, new: bytes) -> Files:
    """Every file below `folder` with a pattern replaced."""
    return {
        name: FileEntry(re.sub(old, new, entry.content), entry.executable) if name.startswith(folder) else entry
        for name, entry in files.items()
    }


def in_other_words(files: Files) -> Files:
    return {**files, "instruction.md": FileEntry(b"Do the chore that this machine is prepared for, with care.")}


def politely(files: Files) -> Files:
    return rewritten(files, "instruction.md", rb"$", b" Thank you very much in advance.")


def renamed(files: Files) -> Files:
    """Every fixture has another name, wherever it is named."""
    names = {name.rpartition("/")[2].partition(".")[0] for name in files if name.startswith("environment/files/")}
    for number, stem in enumerate(sorted(names)):
        files = rewritten(files, "", rb"\b" + stem.encode() + rb"\b", b"zq%dx" % number)
        files = {re.sub(rf"/{stem}\b", f"/zq{number}x", name): entry for name, entry in files.items()}
    return files


def with_other_check_names(files: Files) -> Files:
    return rewritten(files, "tests/", rb"__", b"_check_")


def with_comments(files: Files) -> Files:
    return rewritten(files, "solution/", rb"\n", b"\n# now the next one\n\n")


def longer(files: Files) -> Files:
    return {**files, "tests/more.txt": FileEntry(b"one more line\n"), "environment/files/more": FileEntry(b"x\n")}


COPIES = (in_other_words, politely, renamed, with_other_check_names, with_comments, longer)


def tasks(count: int) -> list[Files]:
    rng = Random(3)
    return [composed(*rng.sample(list(SKILLS), rng.randint(1, 4)), seed=seed) for seed in range(count)]


@pytest.mark.parametrize("copy", COPIES)
def test_a_near_copy_of_a_task_is_like_it(copy: Callable[[Files], Files]) -> None:
    found = [likeness(sketch_of(files), sketch_of(copy(files))) >= THRESHOLD for files in tasks(60)]
    assert sum(found) >= 59


def test_different_tasks_of_one_author_are_not_alike() -> None:
    sketches = [sketch_of(files) for files in tasks(150)]
    pairs = [likeness(one, other) for place, one in enumerate(sketches) for other in sketches[:place]]
    assert max(pairs) < THRESHOLD


def test_the_same_exercise_on_other_data_is_another_task() -> None:
    for skill in SKILLS:
        assert likeness(sketch_of(composed(skill, seed=1)), sketch_of(composed(skill, seed=2))) < THRESHOLD, skill


def test_tests_alone_tell_two_tasks_apart_by_no_more_than_their_part() -> None:
    files = composed("sort_numbers", "tar_pack", seed=3)
    other = {**files, "tests/test.sh": FileEntry(b"#!/bin/bash\ntrue\n")}
    found = likeness(sketch_of(files), sketch_of(other))
    assert found == pytest.approx(0.75, abs=0.01)


def test_a_sketch_has_one_size_and_does_not_hang_on_the_order_of_files() -> None:
    strange = greeting({"instruction.md": b"\xff\xfe", "environment/files/x": bytes(range(256)) * 40})
    for files in (greeting(), composed("tar_pack"), strange, {}):
        sketch = sketch_of(files)
        assert len(bytes.fromhex(sketch)) * 2 == len(SKETCH_PARTS) * SKETCH_PLACES * SKETCH_DIGITS
        assert sketch == sketch_of(dict(reversed(files.items())))
    assert sketch_of({}) == EMPTY * len(SKETCH_PARTS)


def test_parts_that_neither_has_do_not_count_and_one_that_one_lacks_counts_as_unlike() -> None:
    a, b = "0" * len(EMPTY), "1" * len(EMPTY)
    assert likeness(a + EMPTY + a + EMPTY, a + EMPTY + b + EMPTY) == 0.5
    assert likeness(a + a + a + EMPTY, b + EMPTY + a + EMPTY) == 0.5
    assert likeness(a + a + a + a, b + a + a + a) == 1.0
    assert likeness(a + EMPTY + a + a, b + EMPTY + a + a) == pytest.approx(2 / 3)
    assert likeness(EMPTY * 4, EMPTY * 4) == 1.0


def test_sketches_of_older_logs_are_compared_as_they_were() -> None:
    old = "".join(f"{place:08x}" for place in range(64))
    assert likeness(old, old) == 1.0
    assert likeness(old, "0" * 8 * 16 + old[8 * 16 :]) == pytest.approx(49 / 64)
    assert likeness(old, sketch_of(greeting())) == 0.0
    assert likeness("", "") == 0.0
