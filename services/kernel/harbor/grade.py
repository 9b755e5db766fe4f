"""Grades what an agent left behind, as Harbor does (its shared mode) but out of the agent's reach.

The agent's sandbox has been snapshotted, so none of its processes live. Grading runs in a fresh sandbox over that
snapshot with the image's own system files, with /tests read-only and /logs/verifier empty, both fresh; then the reward
is read from the host's side, strictly. Where that gives no reward it is done once more, with an untouched environment
graded beside it, which tells an agent that broke its verifier (reward 0) from an environment that cannot grade.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from msgspec import Struct

from services.kernel.archive import FileEntry, digest, pack, write_tree
from services.kernel.harbor.layers import LayerCache
from services.kernel.harbor.pytest_report import read_pytest
from services.kernel.harbor.recipe import ImageBuilder
from services.kernel.harbor.reward import RewardError, read_verdict
from services.kernel.harbor.support import resolve_env
from services.kernel.harbor.task import HarborTask
from services.kernel.sandbox.launch import uid_of
from services.kernel.sandbox.protocol import (
    Ended,
    ExecResult,
    Image,
    Limits,
    Mount,
    Pins,
    SandboxBackend,
    SandboxError,
    SandboxRefusedError,
    SnapshotId,
)


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


class Solved(Struct, frozen=True, kw_only=True):
    """What a solution's run ended with, and what it left; the snapshot lives as long as the context that gave it."""

    result: ExecResult
    snapshot: SnapshotId


class TooSlowError(SandboxError):
    """A program met its wall limit while it was busy: a slow machine, or one that waits actively. Nobody can tell."""


class Grader:
    """Grades snapshots of one backend. `builder` makes the images of separate verifiers; `work_dir` holds the unpacked
    tests, and several processes may share it.
    """

    def __init__(self, backend: SandboxBackend, builder: ImageBuilder, work_dir: Path) -> None:
        self._backend, self._builder = backend, builder
        self._unpacked = LayerCache(work_dir)

    async def grade(
        self, task: HarborTask, image: Image, snapshot: SnapshotId | None, *, pins: Pins | None = None
    ) -> Grade | EnvironmentBroken:
        """The grade of a snapshot, or of the untouched environment where there is none. The snapshot is left as it is.

        Raises:
            SandboxError: infrastructure; it says nothing about the agent.
        """
        again = await self.attempt(task, image, snapshot, pins=pins)
        if isinstance(again, GradeFailed):
            again = await self.attempt(task, image, snapshot, pins=pins)
        if isinstance(again, Grade):
            return again
        untouched = await self.attempt(task, image, None, pins=pins)
        if isinstance(untouched, GradeFailed):
            return EnvironmentBroken(reason=untouched.reason, output=untouched.output)
        if snapshot is None:
            return untouched
        return Grade(
            reward=0.0,
            tests=dict.fromkeys(untouched.tests, False),
            output=again.output,
            cpu_s=again.cpu_s,
            broken_by_agent=again.reason,
        )

    async def attempt(
        self, task: HarborTask, image: Image, snapshot: SnapshotId | None, *, pins: Pins | None = None
    ) -> Grade | GradeFailed:
        """One grading, not repeated. Raises SandboxError."""
        tests = self._unpack(task.part("tests"))
        with self._unpacked.making() as room:
            room.chmod(0o700)  # nobody else on this machine reaches the open folder in it
            logs = room / "verifier"
            logs.mkdir()
            logs.chmod(0o777)
            mounts = (Mount(tests, "/tests"), Mount(logs, "/logs/verifier", writable=True))
            try:
                result = await self._verify(task, image, snapshot, mounts, pins)
            except SandboxRefusedError as error:
                return GradeFailed(reason=f"refused by the sandbox: {error}")
            _blame_the_machine(result, "verifier")
            if result.ended is not Ended.exited:
                reason = f"the verifier was stopped by its {result.ended}"
                return GradeFailed(reason=reason, output=result.output, cpu_s=result.cpu_s)
            try:
                verdict = read_verdict(logs)
            except RewardError as error:
                return GradeFailed(reason=str(error), output=result.output, cpu_s=result.cpu_s)
        return Grade(
            reward=verdict.reward,
            tests=verdict.tests or _printed_tests(result.output),
            metrics=verdict.metrics,
            output=result.output,
            cpu_s=result.cpu_s,
        )

    async def run_solution(
        self,
        task: HarborTask,
        image: Image,
        *,
        solution: Mapping[str, FileEntry] | None = None,
        pins: Pins | None = None,
        limits: Limits | None = None,
    ) -> SolutionRun:
        """Runs solve.sh of the task (or of another `solution`) in a fresh sandbox, and grades what it left.

        Raises:
            SandboxError: infrastructure.
        """
        async with self.solved(task, image, solution=solution, pins=pins, limits=limits) as solved:
            grade = await self.grade(task, image, solved.snapshot, pins=pins)
            result = solved.result
            return SolutionRun(exit_code=result.exit_code, ended=result.ended, output=result.output, grade=grade)

    @asynccontextmanager
    async def solved(
        self,
        task: HarborTask,
        image: Image,
        *,
        solution: Mapping[str, FileEntry] | None = None,
        pins: Pins | None = None,
        limits: Limits | None = None,
    ) -> AsyncIterator[Solved]:
        """As `run_solution`, not graded: for those who look at the snapshot, or grade it more than once. `limits`:
        others than the task's own for an agent.

        Raises:
            SandboxError: infrastructure.
        """
        files = task.part("solution") if solution is None else solution
        mounts = (Mount(self._unpack(files), "/solution"),)
        limits = limits or task.agent_limits
        sandbox = await self._backend.start(
            image, pins=_pins(image, task.config.agent.user, pins), limits=limits, mounts=mounts
        )
        try:
            result = await sandbox.exec(
                "/solution/solve.sh",
                cwd=image.workdir,
                env={"DEBIAN_FRONTEND": "noninteractive", **resolve_env(task.config.solution.env)},
                limits=limits,
            )
            _blame_the_machine(result, "solution")
            snapshot = await sandbox.snapshot()
        except BaseException:
            await sandbox.close()
            raise
        try:
            yield Solved(result=result, snapshot=snapshot)
        finally:
            await self._backend.drop(snapshot)

    async def run_noop(self, task: HarborTask, image: Image, *, pins: Pins | None = None) -> Grade | EnvironmentBroken:
        """The grade of an untouched environment. Raises SandboxError."""
        return await self.grade(task, image, None, pins=pins)

    async def _verify(
        self,
        task: HarborTask,
        image: Image,
        snapshot: SnapshotId | None,
        mounts: tuple[Mount, ...],
        pins: Pins | None,
    ) -> ExecResult:
        limits = task.verifier_limits
        sandbox = await self._backend.start(
            image,
            pins=_pins(image, task.config.verifier.user, pins),
            limits=limits,
            mounts=mounts,
            snapshot=snapshot,
            trusted_system=True,
        )
        try:
            return await sandbox.exec(
                "/tests/test.sh",
                cwd=image.workdir,
                env=resolve_env(task.config.verifier.env),
                limits=limits,
            )
        finally:
            await sandbox.close()

    def _unpack(self, files: Mapping[str, FileEntry]) -> Path:
        """The files on disk, scripts executable as Harbor makes them; written once for each content."""
        runnable = {
            name: FileEntry(entry.content, entry.executable or name in ("test.sh", "solve.sh"))
            for name, entry in files.items()
        }
        key = digest(pack(runnable))
        found = self._unpacked.get(key)
        if found is not None:
            return found
        with self._unpacked.making() as folder:
            write_tree(runnable, folder)
            return self._unpacked.keep(folder, key)


def _pins(image: Image, user: str | int | None, pins: Pins | None) -> Pins:
    """A sandbox has one user: that of the phase, or else of the image."""
    return replace(pins or Pins(), user_uid=uid_of(image, image.user if user is None else str(user)))


def _printed_tests(output: bytes) -> dict[str, bool]:
    """Many verifiers run pytest and leave no ctrf.json: what it printed has the names."""
    report = read_pytest(output)
    return report.tests if report else {}


def _blame_the_machine(result: ExecResult, what: str) -> None:
    """A wall limit blames a program only if it was idle. Raises TooSlowError for a busy one."""
    if result.ended is Ended.wall_limit and not result.idle:
        raise TooSlowError(f"a busy {what} met its wall limit: this machine is too slow")
