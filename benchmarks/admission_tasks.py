"""The tasks that both sides of the admission benchmark check: composed by our skills, the same each time."""

from pathlib import Path
from random import Random
from zlib import crc32

from services.kernel.archive import FileEntry, write_tree
from services.kernel.skills.catalogue import SKILLS
from services.kernel.skills.compose import compose
from services.kernel.skills.harbor_files import harbor_files
from services.kernel.skills.lexicon import Names

STEPS_MAX = 3
MARK_PATH = "environment/files/.benchmark"


def task_files(number: int) -> dict[str, FileEntry]:
    """A Harbor task of one to three steps."""
    rng = Random(f"admission {number}")
    skills = rng.sample(sorted(SKILLS), 1 + number % STEPS_MAX)
    files = harbor_files(compose(rng, skills, Names(rng), distractors=2), slug=f"task-{number:03}")
    return {path: FileEntry(spec.content, spec.mode == 0o755) for path, spec in files.items()}


def write_tasks(folder: Path, count: int, *, mark: str, network: bool) -> None:
    """Task directories `task-000` and on, as Harbor takes a data set.

    `mark` is a file that every image copies, so that no cache of an earlier pass knows its layers. `network` asks for
    Harbor's default, a network.
    """
    for number in range(count):
        files = task_files(number)
        files[MARK_PATH] = FileEntry(mark.encode(), executable=False)
        if network:
            manifest = files["task.toml"].content.decode().replace('"no-network"', '"public"')
            files["task.toml"] = FileEntry(manifest.encode(), executable=False)
        # BuildKit goes by size and time to tell which files of a context it has already: no two tasks share a time.
        write_tree(files, folder / f"task-{number:03}", mtime_s=crc32(f"{mark} {number}".encode()))
