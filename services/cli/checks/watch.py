"""A task that its author works on: checked again after every change, with builds and sandboxes kept warm."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from services.cli.checks.verdict import TaskVerdict

POLL_S = 0.3
SETTLE_POLLS = 2
"""A change counts once the files have been the same so many looks in a row."""
Look = tuple[tuple[str, int, int, int], ...]


def look(path: Path) -> Look:
    """Name, size, mode and time of everything below, or of the file itself."""
    found = [_seen(path)]
    for folder, folders, files in os.walk(path):
        folders.sort()
        found += [_seen(Path(folder, name)) for name in sorted([*folders, *files])]
    return tuple(found)


async def watch(path: Path, check: Callable[[], Awaitable[TaskVerdict]], stop: asyncio.Event) -> TaskVerdict | None:
    """Checks now and after each change until `stop`; a change during a check ends that check. The last verdict."""
    last: TaskVerdict | None = None
    stopping = asyncio.create_task(stop.wait())
    try:
        while not stop.is_set():
            seen = look(path)
            checking = asyncio.ensure_future(check())
            changing = asyncio.create_task(_changed(path, seen))
            try:
                await asyncio.wait({checking, changing, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if checking.done():
                    last = checking.result()
                    await asyncio.wait({changing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (checking, changing):
                    task.cancel()
                await asyncio.gather(checking, changing, return_exceptions=True)
    finally:
        stopping.cancel()
    return last


async def _changed(path: Path, seen: Look) -> None:
    """Until it looks otherwise, and has settled."""
    same, before = 0, seen
    while same < SETTLE_POLLS or before == seen:
        await asyncio.sleep(POLL_S)
        now = await asyncio.to_thread(look, path)
        same = same + 1 if now == before else 0
        before = now


def _seen(path: Path) -> tuple[str, int, int, int]:
    try:
        status = path.lstat()
    except OSError:
        return (str(path), 0, 0, 0)
    return (str(path), status.st_size, status.st_mode, status.st_mtime_ns)
