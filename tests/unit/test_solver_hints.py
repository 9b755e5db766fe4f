"""Hints tell how a solution begins and what it uses, and never all of it."""

import pytest

from services.kernel.archive import FileEntry
from services.kernel.harbor.task import HarborTask, read_task
from services.solver.rollout.hints import with_hints
from tests.support.harbor_tasks import greeting


def task(solution: str | None) -> HarborTask:
    files = greeting({"solution/solve.sh": solution})
    found = read_task(files).task
    assert found is not None
    return found


def hints(solution: str | None, bytes_max: int = 1000) -> list[str]:
    asked = task(solution)
    told = with_hints(asked, bytes_max=bytes_max)
    assert told.startswith(asked.instruction.rstrip())
    return told[len(asked.instruction.rstrip()) :].strip().splitlines()


def test_programs_are_named_and_half_of_the_lines_told() -> None:
    solution = "#!/bin/bash\nset -e\ncd /a\n# 1\ngrep x a | sort -u > b\nwc -l b | awk '{print $1}' > c\ntrue\ntrue\n"
    assert hints(solution) == [
        "It can be done with: grep, sort, wc, awk, true",
        "It can begin with: grep x a | sort -u > b",
        "It can begin with: wc -l b | awk '{print $1}' > c",
    ]


def test_of_a_solution_of_one_line_only_the_programs_are_told() -> None:
    assert hints("#!/bin/bash\ncd /app\nsort -n in.txt > out.txt\n") == ["It can be done with: sort"]


def test_text_that_is_fed_to_a_program_is_no_command() -> None:
    solution = "#!/bin/bash\npython3 - <<'END'\nimport secret\nopen('answer')\nEND\ntouch done\n"
    assert hints(solution) == ["It can be done with: python3, touch", "It can begin with: python3 - <<'END'"]


@pytest.mark.parametrize("bytes_max", [0, 30, 60, 90])
def test_hints_stay_within_their_bytes(bytes_max: int) -> None:
    told = hints("#!/bin/bash\n" + "echo ä >> out\n" * 6, bytes_max)
    assert len("\n".join(told).encode()) <= bytes_max
    assert bool(told) == (bytes_max > 0)


def test_without_a_solution_the_instruction_stays_as_it_is() -> None:
    asked = task("#!/bin/bash\n")
    bare = HarborTask(asked.config, asked.instruction, {"x": FileEntry(b"")}, asked.digest)
    assert with_hints(bare, bytes_max=100) == bare.instruction
    assert with_hints(asked, bytes_max=100) == asked.instruction
