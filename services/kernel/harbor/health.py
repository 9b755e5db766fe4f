"""Healthchecks: waits until an environment says that it is ready, as Harbor does before an agent begins."""

import asyncio
import time

from services.kernel.harbor.config import Healthcheck
from services.kernel.sandbox.protocol import Limits, Sandbox, SandboxRefusedError


class UnhealthyError(SandboxRefusedError):
    """The environment does not get ready: its own doing, since nothing else ran in it."""


async def await_healthy(sandbox: Sandbox, check: Healthcheck | None, limits: Limits) -> None:
    """Runs the command until it succeeds. In the start period failures do not count; afterwards `retries` in a row are
    too many.

    Raises:
        UnhealthyError: it failed too often.
        SandboxError: infrastructure.
    """
    if check is None:
        return
    bounded = Limits(
        cpu_s=check.timeout_sec,
        wall_s=10 * check.timeout_sec,
        memory_bytes_max=limits.memory_bytes_max,
        pids_max=limits.pids_max,
        disk_bytes_max=limits.disk_bytes_max,
    )
    started_s, failures = time.monotonic(), 0
    while True:
        starting = time.monotonic() < started_s + check.start_period_sec
        result = await sandbox.exec(check.command, limits=bounded)
        if result.exit_code == 0:
            return
        failures += not starting
        if failures >= check.retries:
            said = result.output.decode(errors="replace").strip()[-200:]
            raise UnhealthyError(f"the healthcheck failed {failures} times ({check.command[:80]!r}): {said}")
        await asyncio.sleep(check.start_interval_sec if starting else check.interval_sec)
