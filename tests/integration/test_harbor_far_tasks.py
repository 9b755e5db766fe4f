"""Held-out tasks written by hand build, are solved by their solutions and are not solved by doing nothing."""

from pathlib import Path

import pytest

import services.kernel.heldout
from services.kernel.harbor.grade import Grade
from services.kernel.harbor.task import read_task_dir
from services.kernel.sandbox.protocol import Pins
from tests.support.lab import open_lab

FOLDER = Path(services.kernel.heldout.__file__).parent / "far"
SOME = sorted(path for path in FOLDER.iterdir() if path.is_dir())[::3]


@pytest.mark.parametrize("part", range(4))
async def test_hand_written_tasks_hold_in_the_real_sandbox(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, part: int
) -> None:
    async with open_lab(tmp_path, tmp_path_factory.getbasetemp() / "base") as lab:
        for folder in SOME[part::4]:
            reading = read_task_dir(folder)
            assert reading.problems == reading.unsupported == reading.implicit == (), folder.name
            assert reading.task is not None
            image = await lab.builder.build(reading.task)
            run = await lab.grader.run_solution(reading.task, image, pins=Pins(hostname="other", timezone="Asia/Tokyo"))
            idle = await lab.grader.run_noop(reading.task, image)
            assert isinstance(run.grade, Grade), folder.name
            assert isinstance(idle, Grade), folder.name
            assert (run.exit_code, run.grade.reward) == (0, 1.0), folder.name
            assert idle.reward < 0.5, folder.name
            assert run.grade.tests.keys() == idle.tests.keys() != set(), folder.name
