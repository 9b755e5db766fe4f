"""How every service runs: a decider and workers over one log, until it is told to stop or cannot go on."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from schemas.codec import same_body
from schemas.messages import RunStarted
from schemas.outcomes import Role
from schemas.pins import other_versions
from schemas.science import Science
from schemas.subjects import pattern
from schemas.topology import decider_patterns, work_patterns
from services.kernel.artifacts import ArtifactStore
from services.kernel.decider import Decider, Policy
from services.kernel.delivery import Speaker, read_event
from services.kernel.errors import OtherVersions
from services.kernel.jetstream_log import JetStreamLog, connect
from services.kernel.log import EventLog, WorkQueue
from services.kernel.options import ServiceOptions
from services.kernel.spool import Spool
from services.kernel.worker import Handler, Worker, WorkRules

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class Context:
    """What a handler is built from."""

    options: ServiceOptions
    run: RunStarted
    log: EventLog
    artifacts: ArtifactStore
    speaker: Speaker

    @property
    def science(self) -> Science:
        return self.run.science


Build = Callable[[Context], Awaitable[Handler]]
"""Makes a service's handler. What it opens it must close in its `close`, if it has one."""


async def open_log(options: ServiceOptions, role: Role) -> JetStreamLog:
    return await connect(options.nats_url, options.run, same_body, name=f"envwheel-{role.value}-{options.replica}")


def speaker_of(options: ServiceOptions, role: Role) -> Speaker:
    return Speaker(options.run, role, host=socket.gethostname(), replica=options.replica)


async def read_run(log: EventLog, run: str) -> RunStarted:
    """The first record of the run; waits for it."""
    async with aclosing(log.read(0, (pattern(run, RunStarted.name),), follow=True)) as records:
        async for stored in records:
            body = read_event(run, stored).body
            if isinstance(body, RunStarted):
                return body
    raise RuntimeError("the log ended without RunStarted")


async def serve(role: Role, policy: Policy[Any], build: Build, options: ServiceOptions, stop: asyncio.Event) -> None:
    """Run one replica until `stop` is set.

    Raises:
        OtherVersions, Diverged, Unreadable, LogDenied and the like: going on would be wrong; the process should end
        with an error.
    """
    options.work.mkdir(parents=True, exist_ok=True)
    log = await open_log(options, role)
    handler: Handler | None = None
    try:
        run = await _unless_stopped(read_run(log, options.run), stop)
        if run is None:
            return
        if differing := other_versions(run, role, policy.VERSION):
            raise OtherVersions(differing)
        speaker = speaker_of(options, role)
        handler = await build(Context(options, run, log, ArtifactStore(options.artifacts).create(), speaker))
        spool = Spool(options.work / "tries")
        decider = Decider(log, policy, speaker, decider_patterns(options.run, role))
        worker = Worker(log, await _queue(log, role, options), handler, speaker, _rules(run, options), spool)
        _LOG.info("%s %s serves run %s", role.value, options.replica, options.run)
        await _until_stopped(decider, worker, stop)
    finally:
        closing = getattr(handler, "close", None)
        if closing is not None:
            await closing()
        await log.close()


async def _queue(log: EventLog, role: Role, options: ServiceOptions) -> WorkQueue:
    return await log.work(
        role.value,
        work_patterns(options.run, role),
        ack_wait_s=options.ack_wait_s,
        in_flight_max=1 if role is Role.trainer else options.in_flight_max,
    )


def _rules(run: RunStarted, options: ServiceOptions) -> WorkRules:
    failures = run.science.failures
    return WorkRules(
        slots=options.slots,
        ack_wait_s=options.ack_wait_s,
        kills_max=failures.kills_max,
        failures_max=failures.failures_max,
        drain_s=options.drain_s,
    )


async def _until_stopped(decider: Decider[Any], worker: Worker, stop: asyncio.Event) -> None:
    deciding = asyncio.create_task(decider.run())
    working = asyncio.create_task(worker.run(stop))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({deciding, working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not deciding.done():
            await working
        if deciding.done():
            deciding.result()
    finally:
        for task in (deciding, working, stopping):
            task.cancel()
        await asyncio.gather(deciding, working, stopping, return_exceptions=True)


async def _unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """The result of `work`, or None where the stop came first."""
    doing, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        doing.cancel()
        stopping.cancel()
        await asyncio.gather(doing, stopping, return_exceptions=True)
