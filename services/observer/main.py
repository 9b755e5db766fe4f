"""The observer: follows the log, and writes tables, seals, traces and the report. It decides nothing."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable

from schemas.outcomes import Role
from services.kernel.artifacts import ArtifactStore
from services.kernel.log import EventLog
from services.kernel.options import ServiceOptions
from services.kernel.service import open_log
from services.kernel.skills.catalogue import SKILLS
from services.observer.handler import Observer
from services.observer.views.projector import FLUSH_S

_LOG = logging.getLogger(__name__)
_DRAIN_S_MAX = 1.5
_LAST_SEAL_S = 1.0


async def serve(options: ServiceOptions, stop: asyncio.Event) -> None:
    """Until `stop` is set. A new start reads the log from its first record and goes on where the views are.

    Raises: ViewsOwned, Unreadable, SealBroken, LogError.
    """
    options.work.mkdir(parents=True, exist_ok=True)
    log = await open_log(options, Role.observer)
    try:
        store = ArtifactStore(options.artifacts).create()
        observer = Observer(options.run, log, store, options.work, skills=SKILLS)
        try:
            _LOG.info("observer %s serves run %s", options.replica, options.run)
            await _follow(observer, log, stop, min(options.drain_s, _DRAIN_S_MAX))
        finally:
            observer.close()
    finally:
        await log.close()


async def _follow(observer: Observer, log: EventLog, stop: asyncio.Event, drain_s: float) -> None:
    taking = asyncio.Lock()
    reading = asyncio.create_task(_read(observer, log, taking))
    ticking = asyncio.create_task(_tick(observer))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({reading, ticking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        async with taking:  # never in the middle of a record
            reading.cancel()
    finally:
        for task in (reading, ticking, stopping):
            task.cancel()
        await asyncio.gather(reading, ticking, stopping, return_exceptions=True)
    for task in (reading, ticking):
        if not task.cancelled():
            task.result()
    await _within(drain_s, _read_to_the_end(observer, log))
    await _within(_LAST_SEAL_S, observer.seal_rest())


async def _within(timeout_s: float, work: Awaitable[None]) -> None:
    """Gives up where it takes longer, as when the log is gone already: the next start goes on from there."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await work


async def _read(observer: Observer, log: EventLog, taking: asyncio.Lock) -> None:
    async for stored in log.read(follow=True):
        async with taking:
            await observer.take(stored)


async def _read_to_the_end(observer: Observer, log: EventLog) -> None:
    async for stored in log.read(observer.position):
        await observer.take(stored)


async def _tick(observer: Observer) -> None:
    while True:
        await asyncio.sleep(FLUSH_S)
        observer.tick()
