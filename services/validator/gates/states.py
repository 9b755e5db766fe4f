"""What a solution has changed, as its verifier would find it: to tell if two solutions leave the same."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from services.kernel.sandbox.protocol import Ended, Image, Limits, Pins, SandboxBackend, SnapshotId

STATE_BYTES_MAX = 4 * 2**20
LOOK_LIMITS = Limits(cpu_s=20.0, wall_s=200.0, output_bytes_max=STATE_BYTES_MAX)
CACHES = ("/__pycache__", "/.pytest_cache")
"""In them are the times of other files."""
LEFT_OUT = ("dev", "proc", "sys", "run", "tmp", "var/tmp", "var/log", "var/cache", "logs", "tests", "solution")

_HASHED = re.compile(r"[0-9a-f]{64}  /")

Record: TypeAlias = tuple[str, str]
"""A path, and what is said of it."""


@dataclass(frozen=True)
class State:
    """Everything below / that has changed since a time, but for LEFT_OUT and CACHES."""

    records: frozenset[Record]

    def contents(self) -> set[Record]:
        """Of regular files: paths and hashes."""
        return {(path, said) for path, said in self.records if said.startswith("sha256 ")}

    def paths(self) -> frozenset[str]:
        return frozenset(path for path, _ in self.records)

    def differing(self, other: "State") -> frozenset[str]:
        return frozenset(path for path, _ in self.records ^ other.records)


@dataclass(frozen=True)
class Twice:
    """What two runs of the same left."""

    one: State
    other: State

    def missed_by(self, state: State) -> frozenset[str]:
        """Where a state differs from theirs, but for paths that differ from run to run anyway."""
        return state.differing(self.one) - self.one.differing(self.other)


async def read_state(
    backend: SandboxBackend, image: Image, pins: Pins, snapshot: SnapshotId | None, since_s: int
) -> State | None:
    """What has changed since `since_s` (Unix time); None where the image has no GNU find to tell, or it is too much.

    Raises:
        SandboxError: infrastructure.
    """
    sandbox = await backend.start(image, pins=pins, limits=LOOK_LIMITS, snapshot=snapshot, trusted_system=True)
    try:
        result = await sandbox.exec(_look(since_s), cwd="/", limits=LOOK_LIMITS)
    finally:
        await sandbox.close()
    if result.ended is not Ended.exited or result.exit_code != 0 or result.output_bytes > len(result.output):
        return None
    try:
        return State(
            frozenset(record for record in _read(result.output) if not any(map(record[0].__contains__, CACHES)))
        )
    except ValueError:
        return None


def _look(since_s: int) -> str:
    """NUL after every record. A folder tells what is in it, so that it shows what was removed. What this user may not
    read is left out: the verifier cannot read it either."""
    out = " -o ".join(f"-path /{name}" for name in LEFT_OUT)
    return (
        "sha256sum -z /dev/null > /dev/null && find / -maxdepth 0 -newerct @0 -printf '' || exit 1\n"
        f"find / -xdev \\( {out} \\) -prune -o -newerct @{since_s} \\( "
        r"-type f -printf 'file %m %p\0' -exec sha256sum -z -- {} + -o "
        r"-type d -printf 'folder %m %p\0' -exec find {} -mindepth 1 -maxdepth 1 -printf 'entry %y %p\0' \; -o "
        r"-printf 'other %y%m%l %p\0' \) 2>/dev/null" + "\nexit 0"
    )


def _read(raw: bytes) -> Iterator[Record]:
    for line in raw.split(b"\0")[:-1]:
        text = line.decode("utf-8", "surrogateescape")
        if _HASHED.match(text):
            yield text[66:], f"sha256 {text[:64]}"
        else:
            kind, said, path = text.split(" ", 2)
            yield path, f"{kind} {said}"
