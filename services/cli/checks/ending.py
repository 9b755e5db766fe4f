"""How a command that runs sandboxes ends when it is told to: whole, with nothing left behind."""

import asyncio
import signal
from collections.abc import Awaitable

from services.cli.outcome import warn

TERMINATED = 128 + signal.SIGTERM


async def until_sigterm(command: Awaitable[int]) -> int:
    """Its exit code. SIGTERM cancels it, so that all it has opened is closed, as Ctrl-C does."""
    doing = asyncio.ensure_future(command)
    told = False

    def end() -> None:
        nonlocal told
        told = True
        doing.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        return await doing
    except asyncio.CancelledError:
        if not told:
            raise
        warn("envwheel: terminated")
        return TERMINATED
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
