"""Many tasks: several at once, each one's trouble its own, what was said before not checked again."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from itertools import islice

import msgspec

from services.cli.checks.checker import Checker
from services.cli.checks.kept import KeptVerdicts
from services.cli.checks.target import Target
from services.cli.checks.verdict import TaskVerdict
from services.kernel.archive import ArchiveError, digest


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
    verdict = await checker.check_archive(target, archive)
    kept.keep(verdict)
    return verdict
