"""What a sandbox costs: side by side with a bare subprocess and with a fresh bubblewrap for every command.

Run: python benchmarks/sandbox.py [rounds]. Medians of wall time; CPU time includes every process, inside and out.
"""

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from services.kernel.sandbox.base import host_base
from services.kernel.sandbox.bubblewrap import BubblewrapBackend
from services.kernel.sandbox.launch import Plan, command_line
from services.kernel.sandbox.protocol import Image, Pins

COMMAND = ("bash", "-c", "echo hello")
AT_ONCE = 8


def cpu_s() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in spent)


async def measure(rounds: int, step: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Median wall milliseconds and mean CPU milliseconds of a step."""
    await step()
    walls, before_s = [], cpu_s()
    for _ in range(rounds):
        started = time.perf_counter()
        await step()
        walls.append(time.perf_counter() - started)
    return statistics.median(walls) * 1000, (cpu_s() - before_s) / rounds * 1000


async def bare() -> None:
    subprocess.run(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)  # noqa: ASYNC221


def fresh_bubblewrap(image: Image, folder: Path) -> Callable[[], Awaitable[None]]:
    """The same namespaces, overlay and limits on what is seen, without a supervisor: one bubblewrap a command."""
    upper, work = folder / "upper", folder / "work"
    upper.mkdir(parents=True)
    work.mkdir()
    argv = command_line(Plan(image, Pins(), image.lowers, upper, work), bundle_fd=0, control_fd=0, seccomp_fd=None)
    argv = [*argv[: argv.index("--") + 1], *COMMAND]

    async def step() -> None:
        subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True, env={"PATH": "/usr/bin"})  # noqa: ASYNC221

    return step


async def main(rounds: int) -> None:
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, uid {os.getuid()}, {rounds} rounds")
    with tempfile.TemporaryDirectory(prefix="sandbox-bench-") as name:
        folder = Path(name)
        image = replace(host_base(folder / "base").image(), workdir="/")
        async with BubblewrapBackend(folder / "sandboxes") as backend:
            rows: list[tuple[str, float, float]] = []

            async def start_and_close() -> None:
                await (await backend.start(image)).close()

            async def episode() -> None:
                sandbox = await backend.start(image)
                for _ in range(10):
                    await sandbox.exec(COMMAND)
                await sandbox.close()

            async def at_once() -> None:
                await asyncio.gather(*(episode() for _ in range(AT_ONCE)))

            bare_ms = await measure(rounds, bare)
            rows.append(("bare subprocess", *bare_ms))
            rows.append(
                ("fresh bubblewrap for the command", *await measure(rounds, fresh_bubblewrap(image, folder / "x")))
            )
            sandbox = await backend.start(image)
            exec_wall_ms, _ = await measure(rounds, lambda: sandbox.exec(COMMAND))
            await sandbox.close()
            start = await measure(rounds, start_and_close)
            ten = await measure(max(3, rounds // 5), episode)
            rows.append(("exec in a running sandbox", exec_wall_ms, (ten[1] - start[1]) / 10))
            rows.append(("start and close", *start))
            rows.append(("start, 10 execs, close", *ten))
            many = await measure(max(3, rounds // 10), at_once)
            rows.append((f"the same, one of {AT_ONCE} at once", many[0] / AT_ONCE, many[1] / AT_ONCE))
        print(f"{'':36}{'wall ms':>9}{'x bare':>8}{'CPU ms':>9}{'x bare':>8}")
        for label, wall, cpu in rows:
            print(f"{label:36}{wall:9.2f}{wall / bare_ms[0]:8.1f}{cpu:9.2f}{cpu / bare_ms[1]:8.1f}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50))
