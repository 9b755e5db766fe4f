"""Tries each property of a sandbox backend for real on this machine, and says how it is held or what to do.

Every probe has a fresh sandbox with small limits; all together take two to three seconds.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from services.kernel.sandbox.protocol import (
    Ended,
    ExecResult,
    Image,
    LimitCheck,
    Limits,
    Pins,
    SandboxBackend,
    SandboxError,
    SandboxRefusedError,
)

SMALL = Limits(cpu_s=5.0, wall_s=10.0, memory_bytes_max=96 << 20, pids_max=40, disk_bytes_max=8 << 20)
FORKS = """
import os, time
count = 0
try:
    while count < 300:
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
        count += 1
except BlockingIOError:
    pass
print(count, flush=True)
time.sleep(0.5)
"""
HOLD_30_MIB = "import time; held = bytearray(30 << 20); time.sleep(5)"
Probe = Callable[["Prober"], Awaitable[tuple[bool, str]]]


class Prober:
    def __init__(self, backend: SandboxBackend, image: Image) -> None:
        self._backend, self.image = backend, image

    async def run(self, *commands: str, pins: Pins | None = None, limits: Limits = SMALL) -> list[ExecResult]:
        """The results of `commands`, one after the other in one fresh sandbox."""
        sandbox = await self._backend.start(self.image, pins=pins, limits=limits)
        try:
            return [await sandbox.exec(command) for command in commands]
        finally:
            await sandbox.close()


async def network(prober: Prober) -> tuple[bool, str]:
    met = asyncio.Event()

    async def meet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.set()
        writer.close()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        (result,) = await prober.run(f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo met; cat /proc/net/dev")
    interfaces = [line.split(b":")[0].strip() for line in result.output.splitlines() if b":" in line]
    held = not met.is_set() and b"met" not in result.output and interfaces == [b"lo"]
    return held, "a network namespace of its own with nothing but loopback"


async def memory(prober: Prober) -> tuple[bool, str]:
    one, many = await prober.run(
        "python3 -c 'bytearray(200 << 20)'", f"for i in 1 2 3 4 5; do python3 -c '{HOLD_30_MIB}' & done; wait"
    )
    held = one.exit_code != 0 and many.ended is Ended.memory_limit
    return held, "RLIMIT_DATA for a process; the supervisor counts the tree every 0.1 s and ends it"


async def pids(prober: Prober) -> tuple[bool, str]:
    (result,) = await prober.run(f"python3 -c '{FORKS}'")
    if result.ended is Ended.pids_limit:
        return True, "the supervisor counts every 0.1 s and ends the tree (RLIMIT_NPROC does not bind the host's root)"
    count = int(result.output or b"300")
    return count <= SMALL.pids_max, "RLIMIT_NPROC in the sandbox's own user namespace"


async def cpu(prober: Prober) -> tuple[bool, str]:
    limits = Limits(cpu_s=0.3, wall_s=10.0)
    (result,) = await prober.run("(while :; do :; done) & while :; do :; done", limits=limits)
    held = result.ended is Ended.cpu_limit and 0.3 <= result.cpu_s < 2.0
    return held, "the supervisor sums the CPU time of the tree, the dead included, every 0.1 s and ends it"


async def wall(prober: Prober) -> tuple[bool, str]:
    (result,) = await prober.run("sleep 20", limits=Limits(wall_s=0.3))
    return result.ended is Ended.wall_limit and result.idle and result.wall_s < 5.0, "the supervisor's clock"


async def disk(prober: Prober) -> tuple[bool, str]:
    one, many = await prober.run(
        "head -c 50M /dev/zero > /tmp/one; s=$?; rm /tmp/one; exit $s",
        "for i in 1 2 3 4; do head -c 3M /dev/zero > /tmp/$i; done; sleep 9",
    )
    held = one.exit_code != 0 and many.ended is Ended.disk_limit
    return held, "RLIMIT_FSIZE for a file; the writable layer is measured every 0.15 s and the tree ended"


async def output(prober: Prober) -> tuple[bool, str]:
    (result,) = await prober.run("head -c 5M /dev/zero | tr '\\0' x", limits=Limits(output_bytes_max=1000))
    held = len(result.output) == 1000 and result.output_bytes == 5 << 20
    return held, "the supervisor keeps head and tail of the stream"


async def kill(prober: Prober) -> tuple[bool, str]:
    stubborn = "setsid bash -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' & sleep 20"
    _, left = await prober.run(stubborn, "echo /proc/[0-9]*", limits=Limits(wall_s=0.3))
    return len(left.output.split()) == 2, "SIGKILL to every process of the PID namespace at once"


async def isolation(prober: Prober) -> tuple[bool, str]:
    with tempfile.NamedTemporaryFile() as canary:
        tries = (
            f"test -e {canary.name}",
            f"test -e {Path.home() / '.ssh'}",
            "cat /proc/1/environ",
            *(f"touch {bind}/x" for bind in prober.image.host_binds),
            "touch /dev/x",
            'was=$(cat /proc/sys/kernel/core_pattern) && echo "$was" > /proc/sys/kernel/core_pattern',
            "unshare -U true",
            "mount -t tmpfs x /mnt",
            "kill -9 1 && ! kill -0 1",
            "prlimit --pid 1 --nofile=1",
            "chrt -i -p 0 1",
        )
        results = await prober.run(*tries, "ls -A /root /home/* /proc | grep -c '^[0-9]'")
    failed = [tried for tried, result in zip(tries, results, strict=False) if result.exit_code == 0]
    held = not failed and int(results[-1].output) < 10
    how = "namespaces, read-only binds, few capabilities, a system-call filter, an undumpable supervisor"
    return held, how if held else f"possible inside: {failed or 'other processes are seen'}. Do not run agents here"


async def user(prober: Prober) -> tuple[bool, str]:
    (result,) = await prober.run("id -u; touch /tmp/x && stat -c %u /tmp/x", pins=Pins(user_uid=1000))
    return result.output.split() == [b"1000", b"1000"], "one uid mapped into a user namespace"


async def clock(prober: Prober) -> tuple[bool, str]:
    try:
        shifted, plain = await prober.run("date +%s", pins=Pins(clock_offset_s=86_400)), await prober.run("date +%s")
    except SandboxRefusedError as error:
        return False, str(error)
    shift_s = int(shifted[0].output) - int(plain[0].output)
    return abs(shift_s - 86_400) < 60, "libfaketime, for dynamically linked programs"


PROBES: tuple[Probe, ...] = (network, memory, pids, cpu, wall, disk, output, kill, isolation, user, clock)


async def run_probes(
    backend: SandboxBackend, image: Image, mechanisms: Mapping[str, str] | None = None
) -> tuple[LimitCheck, ...]:
    """One after the other, since load would blur what the timing ones see. `mechanisms`: how a backend holds a property
    where that is not bubblewrap's way.
    """
    prober, checks = Prober(backend, image), []
    for probe in PROBES:
        try:
            held, how = await probe(prober)
        except SandboxError as error:
            held, how = False, str(error)
        checks.append(LimitCheck(probe.__name__, held, (mechanisms or {}).get(probe.__name__, how) if held else how))
    return tuple(checks)
