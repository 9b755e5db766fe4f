"""Where a repeat takes place: host name, time zone, locale, clock, order of tests, load. Each can be varied alone.

The user is not varied: an image names it, and an agent always is that user.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import msgspec

from services.kernel.archive import FileEntry
from services.kernel.harbor.task import HarborTask
from services.kernel.sandbox.launch import find_faketime
from services.kernel.sandbox.protocol import Image, Pins

CLOCK_SHIFT_S = 400 * 86_400
SPINNERS_MAX = 4
"""Busy processes beside a run: one a core up to this many, so that on a small machine it gets about half of a core."""


@dataclass(frozen=True)
class Surroundings:
    """The defaults are those of every first run."""

    hostname: str = Pins.hostname
    timezone: str = Pins.timezone
    locale: str = Pins.locale
    clock_offset_s: int = Pins.clock_offset_s
    test_order: int = 0
    """0: as written; 1: the other way round, which swaps every pair; more: shuffled, a seed."""
    loaded: bool = False

    @property
    def pins(self) -> Pins:
        return Pins(self.hostname, self.timezone, self.locale, self.clock_offset_s)

    def varied(self) -> tuple[str, ...]:
        """Names of what differs from a first run."""
        return tuple(name for name, field in _FIELDS.items() if getattr(self, field) != getattr(HERE, field))

    def only(self, name: str) -> "Surroundings":
        """A first run's surroundings but for this one."""
        return replace(HERE, **{_FIELDS[name]: getattr(self, _FIELDS[name])})


_FIELDS = {
    "hostname": "hostname",
    "time zone": "timezone",
    "locale": "locale",
    "clock": "clock_offset_s",
    "test order": "test_order",
    "load": "loaded",
}
HERE = Surroundings()
_PLACES = (("elsewhere", "Asia/Kathmandu"), ("other-host", "America/St_Johns"))
"""Kathmandu is 5:45 ahead of UTC, St John's 3:30 behind with summer time. Locale C is what a container has that sets
none."""


def elsewhere(task: HarborTask, image: Image, repeat: int) -> Surroundings:
    """All that can be varied for this environment, other for every repeat; load, which costs most, in every second."""
    hostname, timezone = _PLACES[repeat % len(_PLACES)]
    return Surroundings(
        hostname,
        timezone,
        "C",
        CLOCK_SHIFT_S if find_faketime(image) else 0,
        repeat + 1 if _order_can_vary(task) else 0,
        loaded=repeat % 2 == 0,
    )


def not_varied(task: HarborTask, image: Image) -> tuple[str, ...]:
    """What stays as it is, and why."""
    order = () if _order_can_vary(task) else ("test order: no pytest files without a conftest.py of their own",)
    clock = () if find_faketime(image) else ("clock: the image has no libfaketime",)
    return (*clock, *order, "user: the image names it")


def with_test_order(task: HarborTask, order: int) -> HarborTask:
    """The task with its pytest files run in another order; their declared order, where there is one, stays."""
    if order == 0 or not _order_can_vary(task):
        return task
    plugin = FileEntry(_CONFTEST.replace("ORDER", str(order)).encode(), executable=False)
    return msgspec.structs.replace(task, files={**task.files, "tests/conftest.py": plugin})


def _order_can_vary(task: HarborTask) -> bool:
    """Tests that lie in an image of the verifier's own are not replaced."""
    tests = task.part("tests")
    names = [PurePosixPath(name).name for name in tests]
    has_pytest = any(name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py")) for name in names)
    return has_pytest and not task.has_verifier_image and "conftest.py" not in tests


_CONFTEST = '''"""Another order of the tests, for one repeat."""
import random

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    declared = ("order", "run", "dependency", "depends", "incremental")
    if any(item.get_closest_marker(name) for item in items for name in declared):
        return
    items.reverse() if ORDER == 1 else random.Random(ORDER).shuffle(items)
'''


@asynccontextmanager
async def under_load(*, loaded: bool) -> AsyncIterator[None]:
    """Keeps the cores of this machine busy inside the block. A spinner ends with its owner, killed or not."""
    async with AsyncExitStack() as stack:
        for _ in range(min(SPINNERS_MAX, len(os.sched_getaffinity(0))) if loaded else 0):
            await stack.enter_async_context(_spinner())
        yield


@asynccontextmanager
async def _spinner() -> AsyncIterator[None]:
    code = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
    process = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", "-c", code)
    try:
        yield
    finally:
        process.kill()
        await process.wait()
