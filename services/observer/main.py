"""The observer: follows the log, and writes tables, seals, traces and the report. It decides nothing."""

import asyncio
import contextlib
import logging

from schemas.outcomes import Role
from services.kernel.artifacts import ArtifactStore
from services.kernel.log import EventLog
from services.kernel.options import ServiceOptions
from services.kernel.service import open_log
from services.kernel.skills.catalogue import SKILLS
from services.observer.handler import Observer
from services.observer.views.projector import FLUSH_S

_LOG = logging.getLogger(__name__)
_LAST_SEAL_S = 2.0


async def serve(options: ServiceOptions, stop: asyncio.Event) -> None:
    """Until `stop` is set. A new start reads the log from its first record and goes on where the views are.

    Raises: ViewsOwned, Unreadable, SealBroken, LogError.
    """
    options.work.mkdir(parents=True, exist_ok=True)
    log = await open_log(options, Role.observer)
    try:
        observer = Observer(options.run, log, ArtifactStore(options.artifacts).create(), options.work, skills=SKILLS)
        try:
            _LOG.info("observer %s serves run %s", options.replica, options.run)
            await _follow(observer, log, stop)
        finally:
            observer.close()
    finally:
        await log.close()


async def _follow(observer: Observer, log: EventLog, stop: asyncio.Event) -> None:
    reading = asyncio.create_task(_read(observer, log))
    ticking = asyncio.create_task(_tick(observer))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({reading, ticking, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (reading, ticking, stopping):
            task.cancel()
        await asyncio.gather(reading, ticking, stopping, return_exceptions=True)
    for task in (reading, ticking):
        if not task.cancelled():
            task.result()
    with contextlib.suppress(TimeoutError):  # the log may be gone already; the next start seals it
        async with asyncio.timeout(_LAST_SEAL_S):
            await observer.seal_rest()


async def _read(observer: Observer, log: EventLog) -> None:
    async for stored in log.read(follow=True):
        await observer.take(stored)


async def _tick(observer: Observer) -> None:
    while True:
        await asyncio.sleep(FLUSH_S)
        observer.tick()
