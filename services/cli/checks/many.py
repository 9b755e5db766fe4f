"""Many tasks: several at once, each one's trouble its own, what was said before not checked again."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from itertools import islice

import msgspec

from services.cli.checks.checker import Checker
from services.cli.checks.kept import KeptVerdicts
from services.cli.checks.target import Target
from services.cli.checks.verdict import TaskVerdict, Word
from services.kernel.archive import ArchiveError, digest

_LOG = logging.getLogger(__name__)


async def check_many(
    checker: Checker, targets: Sequence[Target], kept: KeptVerdicts, *, jobs: int
) -> AsyncGenerator[TaskVerdict]:
    """Verdicts in the order in which they come. Closing the iterator ends what is under way."""
    waiting = iter(targets)
    running: set[asyncio.Task[TaskVerdict]] = set()
    try:
        while True:
            for target in islice(waiting, jobs - len(running)):
                running.add(asyncio.create_task(_check(checker, target, kept)))
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _check(checker: Checker, target: Target, kept: KeptVerdicts) -> TaskVerdict:
    try:
        archive = await asyncio.to_thread(target.archive)
    except (ArchiveError, OSError):
        return await checker.check(target)
    found = kept.get(digest(archive))
    if found is not None:
        return msgspec.structs.replace(found, task=target.name, path=str(target.path))
    try:
        verdict = await checker.check_archive(target, archive)
    except Exception as error:  # noqa: BLE001 - a fault of ours on one task must not end a run over thousands
        _LOG.debug("%s", target.path, exc_info=error)
        return TaskVerdict(
            task=target.name,
            path=str(target.path),
            env=digest(archive),
            verdict=Word.unchecked,
            reason=f"a fault of envwheel: {type(error).__name__}: {error}; check this task alone to see where",
        )
    kept.keep(verdict)
    return verdict
