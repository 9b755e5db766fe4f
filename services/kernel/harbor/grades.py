"""What grading comes to: a valid reward and what it rests on, or why there is none."""

from msgspec import Struct

from services.kernel.sandbox.protocol import Ended, ExecResult, SandboxError, SnapshotId


class Grade(Struct, frozen=True, kw_only=True):
    """A valid reward and what it rests on."""

    reward: float
    """In [0, 1]."""
    tests: dict[str, bool] = {}
    """Passed or not, by name, from ctrf.json or from what pytest printed; empty where the verifier tells no names."""
    metrics: dict[str, float] = {}
    output: bytes = b""
    """What the verifier printed, bounded by the limits' `output_bytes_max`."""
    cpu_s: float = 0.0
    broken_by_agent: str | None = None
    """Why the verifier could not grade this, although it grades an untouched environment: then the reward is 0."""
    separate: bool = False
    """Graded in a sandbox that declared artifacts alone have reached."""
    artifacts: tuple[str, ...] = ()
    """Declared sources that were there; separate verifiers only."""
    warnings: tuple[str, ...] = ()
    """What of the declared could not be had, and why."""


class GradeFailed(Struct, frozen=True, kw_only=True):
    """One grading that gave no valid reward."""

    reason: str
    output: bytes = b""
    cpu_s: float = 0.0


class EnvironmentBroken(Struct, frozen=True, kw_only=True):
    """The environment cannot grade even its untouched self: infrastructure, and a reason to quarantine it."""

    reason: str
    output: bytes = b""


class SolutionRun(Struct, frozen=True, kw_only=True):
    """A reference solution's run and its grade."""

    exit_code: int
    """Kept, although Harbor ignores it: a solution that fails half-way may still earn 1."""
    ended: Ended
    output: bytes
    grade: Grade | EnvironmentBroken
    left_processes: tuple[str, ...] = ()
    """Names of processes that lived on after solve.sh: they are gone when the tests run."""
    warnings: tuple[str, ...] = ()
    """Of collect hooks that failed."""
    undeclared: tuple[str, ...] = ()
    """Where a separate verifier gave less than 1: files that the solution wrote and no artifact covers."""


class Leaving(Struct, frozen=True, kw_only=True):
    """What an agent's sandbox was left as."""

    snapshot: SnapshotId
    processes: tuple[str, ...] = ()
    """Names of those that lived until then."""
    warnings: tuple[str, ...] = ()
    """Of collect hooks that failed."""


class Solved(Struct, frozen=True, kw_only=True):
    """What a solution's run ended with, and what it left; the snapshot lives as long as the context that gave it."""

    result: ExecResult
    snapshot: SnapshotId
    started_s: float = 0.0
    """When its sandbox started, in seconds since 1970."""
    processes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class TooSlowError(SandboxError):
    """A program met its wall limit while it was busy: a slow machine, or one that waits actively. Nobody can tell."""
