"""What a repeat varies, what it leaves alone, and the load beside it."""

import asyncio
import os
import signal
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from services.kernel.harbor.task import HarborTask, read_task
from services.kernel.sandbox.protocol import Image
from services.validator.gates.flaky import flake_rate_upper
from services.validator.gates.surroundings import (
    CLOCK_SHIFT_S,
    HERE,
    SPINNERS_MAX,
    elsewhere,
    not_varied,
    under_load,
    with_test_order,
)
from tests.support.harbor_tasks import greeting

BARE = Image("0" * 64, ())
FAKETIME = Image("1" * 64, (), engine_id="sha256:1", faketime="/usr/lib/faketime/libfaketime.so.1")
NAMES = ("hostname", "time zone", "locale", "clock", "test order", "load")


def task(*tests: str) -> HarborTask:
    found = read_task(greeting(dict.fromkeys(tests, "def test_a(): pass\n"))).task
    assert found is not None
    return found


def test_everything_that_can_be_varied_is_and_other_in_every_repeat() -> None:
    pytests = task("tests/test_outputs.py")
    one, two = elsewhere(pytests, FAKETIME, 0), elsewhere(pytests, FAKETIME, 1)
    assert one.varied() == (*two.varied(), "load") == NAMES
    assert (one.hostname, one.timezone, one.test_order) != (two.hostname, two.timezone, two.test_order)
    assert one.pins.clock_offset_s == CLOCK_SHIFT_S == 34_560_000
    assert not_varied(pytests, FAKETIME) == ("user: the image names it",)


def test_without_faketime_or_pytest_the_clock_or_the_order_stays_and_that_is_said() -> None:
    assert elsewhere(task(), BARE, 0).varied() == ("hostname", "time zone", "locale", "load")
    assert [each.partition(":")[0] for each in not_varied(task(), BARE)] == ["clock", "test order", "user"]
    assert "test order" not in elsewhere(task("tests/test_a.py", "tests/conftest.py"), BARE, 0).varied()
    assert "test order" in elsewhere(task("tests/unit/a_test.py"), BARE, 0).varied()


@pytest.mark.parametrize("name", NAMES)
def test_one_thing_can_be_varied_alone(name: str) -> None:
    there = elsewhere(task("tests/test_outputs.py"), FAKETIME, 0)
    alone = there.only(name)
    assert alone.varied() == (name,)
    assert sum(getattr(alone, field.name) != getattr(HERE, field.name) for field in fields(HERE)) == 1


def test_another_order_is_one_more_file_beside_the_tests() -> None:
    pytests = task("tests/test_outputs.py")
    other = with_test_order(pytests, 1)
    assert other.files.keys() - pytests.files.keys() == {"tests/conftest.py"}
    assert with_test_order(pytests, 2).files != other.files
    assert with_test_order(pytests, 0) == pytests
    assert with_test_order(task(), 1) == task()


def test_the_bound_of_the_flake_rate_is_exact() -> None:
    for runs in (1, 2, 6, 59):
        assert (1 - flake_rate_upper(runs)) ** runs == pytest.approx(0.05)
    assert flake_rate_upper(59) < 0.05


def spinners(owner: int) -> list[int]:
    """Processes that spin as long as `owner` lives."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            said = (place / "cmdline").read_bytes() if place.name.isdigit() else b""
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"getppid() == {owner}".encode() in said:
            found.append(int(place.name))
    return found


async def test_load_is_one_spinner_a_core_and_gone_afterwards() -> None:
    async with under_load(loaded=False):
        assert spinners(os.getpid()) == []
    async with under_load(loaded=True):
        assert len(spinners(os.getpid())) == min(SPINNERS_MAX, len(os.sched_getaffinity(0)))
    assert spinners(os.getpid()) == []


OWNER = """
import asyncio
from services.validator.gates.surroundings import under_load

async def main():
    async with under_load(loaded=True):
        print("loaded", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_load_ends_with_an_owner_that_is_killed() -> None:
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"loaded\n"
    assert spinners(owner.pid)
    owner.send_signal(signal.SIGKILL)
    await owner.wait()
    for _ in range(3000):
        if not spinners(owner.pid):
            break
        await asyncio.sleep(0.02)
    assert spinners(owner.pid) == []
