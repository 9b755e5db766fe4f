"""Started containers that wait for a sandbox of their kind."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from services.kernel.sandbox.docker.container import Container, Kind
from services.kernel.sandbox.protocol import SandboxError

KINDS_MAX = 256
"""How many kinds are remembered."""


class WarmPool:
    """At most `containers_max` wait at a time, for kinds asked for more than once, since most are met once only. The
    one that waits longest gives way.
    """

    def __init__(self, containers_max: int, make: Callable[[Kind], Awaitable[Container]]) -> None:
        self._containers_max, self._make = containers_max, make
        self._times_asked: OrderedDict[Kind, int] = OrderedDict()
        self.waiting: list[Container] = []
        self._coming: list[Kind] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def take(self, kind: Kind) -> Container | None:
        """One that waits, if any lives."""
        for container in [container for container in self.waiting if container.kind == kind]:
            self.waiting.remove(container)
            if container.alive():
                return container
            self._do(container.remove())
        return None

    def asked_for(self, kind: Kind) -> None:
        """A sandbox of this kind was started: from the second time on, another one is prepared."""
        self._times_asked[kind] = times = self._times_asked.pop(kind, 0) + 1
        if len(self._times_asked) > KINDS_MAX:
            self._times_asked.popitem(last=False)
        ready = sum(container.kind == kind for container in self.waiting) + self._coming.count(kind)
        if times > 1 and ready < self._containers_max and len(self._coming) < self._containers_max:
            self._coming.append(kind)
            self._do(self._prepare(kind))

    async def _prepare(self, kind: Kind) -> None:
        """One that does not start is nobody's trouble yet: whoever asks next tries it, and hears of it."""
        try:
            with suppress(SandboxError):
                self.waiting.append(await self._make(kind))
        finally:
            self._coming.remove(kind)
        while len(self.waiting) > (0 if self._closed else self._containers_max):
            await self.waiting.pop(0).remove()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Until nothing is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        self._closed = True
        await self.settle()
        while self.waiting:
            await self.waiting.pop().remove()
