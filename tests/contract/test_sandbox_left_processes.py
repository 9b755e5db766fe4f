"""What a command left running is bounded between two commands too."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from services.kernel.sandbox.protocol import Ended
from tests.support.sandboxes import BACKENDS, SMALL, Rig, open_rig

pytestmark = pytest.mark.asyncio(loop_scope="module")

MARK = "86397.5"
"""How long the processes of this test would sleep: so they are found among all of this machine."""
MULTIPLY = (
    f"(for n in $(seq {4 * SMALL.pids_max}); do sleep {MARK} & [ $n = 9 ] && touch /tmp/begun; done; wait)"
    " > /dev/null 2>&1 & until [ -e /tmp/begun ]; do sleep 0.01; done"
)
PATIENCE_S = 60.0


@pytest_asyncio.fixture(params=BACKENDS, scope="module", loop_scope="module")
async def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    base = tmp_path_factory.getbasetemp() / "sandbox-base"
    async with open_rig(request.param, tmp_path_factory.mktemp(request.param), base) as made:
        yield made


def alive() -> int:
    """Processes of this test, as the host counts them."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found += (process / "cmdline").read_bytes() == f"sleep\0{MARK}\0".encode()
        except OSError:
            continue
    return found


async def test_processes_that_multiply_between_two_commands_are_held(rig: Rig) -> None:
    sandbox = await rig.start()
    try:
        result = await sandbox.exec(MULTIPLY)
        assert result.ended in (Ended.exited, Ended.pids_limit)
        async with asyncio.timeout(PATIENCE_S):
            while (now := alive()) != await later() or now > SMALL.pids_max:
                pass
        again = await sandbox.exec("echo alive")
        assert again.output == b"alive\n" or again.ended is Ended.pids_limit
    finally:
        await sandbox.close()


async def later() -> int:
    await asyncio.sleep(0.5)
    return alive()
