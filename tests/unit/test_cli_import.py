"""Tasks that are brought into a run: stored, said to its log once, and never to a run that is over."""

from pathlib import Path

import pytest

from schemas.codec import same_body
from schemas.messages import EnvImported, RunFinished
from schemas.outcomes import Role
from services.cli.connect import OpenRun
from services.cli.folder import RunFolder
from services.cli.outcome import CliError
from services.cli.seeds import read_archives, say_imports
from services.kernel.archive import digest, write_tree
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import Speaker
from services.kernel.memory import MemoryLog
from tests.support.harbor_tasks import greeting
from tests.support.wheel import RUN, opening


async def a_run(folder: Path) -> OpenRun:
    log = MemoryLog(RUN, same_body)
    await log.append([Speaker(RUN, Role.operator).entry(body) for body in opening()])
    return OpenRun(RunFolder(folder), RUN, log, ArtifactStore(folder / "artifacts").create(), live=False)


def two_tasks(folder: Path) -> Path:
    for name in ("one", "two"):
        write_tree(greeting({"environment/files/notes.txt": name}), folder / "tasks" / name)
    return folder / "tasks"


async def imports(run: OpenRun) -> list[EnvImported]:
    return [event.body for event in await run.events() if isinstance(event.body, EnvImported)]


async def test_every_task_of_a_folder_is_stored_and_said_once(tmp_path: Path) -> None:
    run, archives = await a_run(tmp_path / "run"), read_archives(two_tasks(tmp_path))
    said = await say_imports(run, archives, "CC0-1.0")
    assert await imports(run) == said
    assert [(body.ordinal, body.source, body.licence) for body in said] == [
        (0, "one", "CC0-1.0"),
        (1, "two", "CC0-1.0"),
    ]
    assert [run.artifacts.get(body.env) for body in said] == list(archives.values())
    with pytest.raises(CliError, match="in the run already"):
        await say_imports(run, archives, "CC0-1.0")
    write_tree(greeting({"environment/files/notes.txt": "three"}), tmp_path / "tasks" / "three")
    (more,) = await say_imports(run, read_archives(tmp_path / "tasks"), "MIT")
    assert (more.ordinal, more.source) == (2, "three")


async def test_trajectories_are_stored_before_the_message_that_names_them(tmp_path: Path) -> None:
    run, folder = await a_run(tmp_path / "run"), two_tasks(tmp_path)
    (said,) = await say_imports(run, read_archives(folder / "one"), "MIT", [b"{}", b"[]"])
    assert said.trajectories == (digest(b"{}"), digest(b"[]"))
    assert run.artifacts.get(digest(b"{}")) == b"{}"


async def test_a_run_that_is_over_takes_no_imports(tmp_path: Path) -> None:
    run, folder = await a_run(tmp_path / "run"), two_tasks(tmp_path)
    await run.log.append([Speaker(RUN, Role.operator).entry(RunFinished(round=0, why="enough"))])
    with pytest.raises(CliError, match="has finished"):
        await say_imports(run, read_archives(folder), "MIT")
    assert await imports(run) == []


def test_a_folder_without_tasks_and_a_task_with_links_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="holds none"):
        read_archives(tmp_path)
    folder = two_tasks(tmp_path)
    (folder / "one" / "link").symlink_to("/etc/passwd")
    with pytest.raises(CliError, match="link"):
        read_archives(folder)
