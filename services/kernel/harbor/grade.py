"""Grades what an agent left behind, as Harbor does (its shared mode) but out of the agent's reach.

The agent's sandbox has been snapshotted, so none of its processes live. Grading runs in a fresh sandbox over that
snapshot with the image's own system files, with /tests read-only and /logs/verifier empty, both fresh; then the reward
is read from the host's side, strictly. Where that gives no reward it is done once more, with an untouched environment
graded beside it, which tells an agent that broke its verifier (reward 0) from an environment that cannot grade.

A separate verifier starts from an image of its own, or from the environment's anew: of the snapshot it gets the
declared artifacts alone (`leaving`).
"""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from services.kernel.archive import FileEntry, digest, pack, write_tree
from services.kernel.harbor.dockerfile import DockerfileError
from services.kernel.harbor.grades import (
    EnvironmentBroken,
    Grade,
    GradeFailed,
    Leaving,
    SolutionRun,
    Solved,
    TooSlowError,
)
from services.kernel.harbor.health import await_healthy
from services.kernel.harbor.layers import LayerCache
from services.kernel.harbor.leaving import Outputs, collect, living_processes, restore, run_hooks, undeclared
from services.kernel.harbor.pytest_report import read_pytest
from services.kernel.harbor.recipe import BuildFailedError, ImageBuilder, UnavailableError
from services.kernel.harbor.reward import RewardError, read_verdict, writes_text_only
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
    Sandbox,
    SandboxBackend,
    SandboxRefusedError,
    SnapshotId,
)

__all__ = ["EnvironmentBroken", "Grade", "GradeFailed", "Grader", "Leaving", "SolutionRun", "Solved", "TooSlowError"]

LOGS = "verifier"
"""Name of the folder that a verifier sees as /logs/verifier."""


class Grader:
    """Grades snapshots of one backend. `builder` makes the images of separate verifiers; `work_dir` holds the unpacked
    tests, and several processes may share it.
    """

    def __init__(self, backend: SandboxBackend, builder: ImageBuilder, work_dir: Path) -> None:
        self._backend, self._builder = backend, builder
        self._unpacked = LayerCache(work_dir)

    async def grade(
        self,
        task: HarborTask,
        image: Image,
        snapshot: SnapshotId | None,
        *,
        pins: Pins | None = None,
        tests: Mapping[str, FileEntry] | None = None,
        verifier_env: Mapping[str, str] | None = None,
    ) -> Grade | EnvironmentBroken:
        """The grade of a snapshot, or of the untouched environment where there is none. The snapshot is left as it is.
        `tests`: other files for /tests than the task's; `verifier_env`: more variables for test.sh.

        Raises:
            SandboxError: infrastructure; it says nothing about the agent.
        """

        async def attempt(of: SnapshotId | None) -> Grade | GradeFailed:
            return await self.attempt(task, image, of, pins=pins, tests=tests, verifier_env=verifier_env)

        again = await attempt(snapshot)
        if isinstance(again, GradeFailed):
            again = await attempt(snapshot)
        if isinstance(again, Grade):
            return again
        untouched = await attempt(None)
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
            separate=task.separate,
        )

    async def attempt(
        self,
        task: HarborTask,
        image: Image,
        snapshot: SnapshotId | None,
        *,
        pins: Pins | None = None,
        tests: Mapping[str, FileEntry] | None = None,
        verifier_env: Mapping[str, str] | None = None,
    ) -> Grade | GradeFailed:
        """One grading, not repeated. Raises SandboxError."""
        with self._unpacked.making() as room:
            room.chmod(0o700)  # nobody else on this machine reaches the open folder in it
            try:
                seat = await self._seat(task, image, snapshot, room, pins, tests)
                async with self._verified(task, seat, room, verifier_env or {}) as (result, _):
                    pass
            except (SandboxRefusedError, BuildFailedError, DockerfileError, UnavailableError) as error:
                who = "refused by the sandbox" if isinstance(error, SandboxRefusedError) else "the verifier's image"
                return GradeFailed(reason=f"{who}: {error}")
            _blame_the_machine(result, "verifier")
            if result.ended is not Ended.exited:
                reason = f"the verifier was stopped by its {result.ended}"
                return GradeFailed(reason=reason, output=result.output, cpu_s=result.cpu_s)
            try:
                files = task.part("tests") if tests is None else tests
                verdict = read_verdict(room / LOGS, text_only=writes_text_only(files))
            except RewardError as error:
                hint = (
                    "; COPY . /tests/ is missing in tests/Dockerfile?"
                    if seat.own_tests and result.exit_code == 127
                    else ""
                )
                return GradeFailed(reason=f"{error}{hint}", output=result.output, cpu_s=result.cpu_s)
        return Grade(
            reward=verdict.reward,
            tests=verdict.tests or _printed_tests(result.output),
            metrics=verdict.metrics,
            output=result.output,
            cpu_s=result.cpu_s,
            separate=task.separate,
            artifacts=seat.outputs.sources if seat.outputs else (),
            warnings=seat.outputs.warnings if seat.outputs else (),
        )

    @asynccontextmanager
    async def graded(
        self, task: HarborTask, image: Image, snapshot: SnapshotId
    ) -> AsyncIterator[tuple[Image, SnapshotId]]:
        """What one more grading of the snapshot leaves, over the verifier's image. Raises SandboxError."""
        with self._unpacked.making() as room:
            room.chmod(0o700)
            seat = await self._seat(task, image, snapshot, room, None, None)
            async with self._verified(task, seat, room, {}) as (result, sandbox):
                _blame_the_machine(result, "verifier")
                left = await sandbox.snapshot()
        try:
            yield seat.image, left
        finally:
            await self._backend.drop(left)

    async def run_solution(
        self,
        task: HarborTask,
        image: Image,
        *,
        solution: Mapping[str, FileEntry] | None = None,
        pins: Pins | None = None,
        limits: Limits | None = None,
        tests: Mapping[str, FileEntry] | None = None,
        verifier_env: Mapping[str, str] | None = None,
    ) -> SolutionRun:
        """Runs solve.sh of the task (or of another `solution`) in a fresh sandbox, and grades what it left.

        Raises:
            SandboxError: infrastructure; UnhealthyError among them: the environment's healthcheck fails.
        """
        async with self.solved(task, image, solution=solution, pins=pins, limits=limits, look=True) as solved:
            grade = await self.grade(task, image, solved.snapshot, pins=pins, tests=tests, verifier_env=verifier_env)
            lost = task.separate and isinstance(grade, Grade) and grade.reward < 1
            return SolutionRun(
                exit_code=solved.result.exit_code,
                ended=solved.result.ended,
                output=solved.result.output,
                grade=grade,
                left_processes=solved.processes,
                warnings=solved.warnings,
                undeclared=await self._undeclared(task, image, solved) if lost else (),
            )

    @asynccontextmanager
    async def solved(
        self,
        task: HarborTask,
        image: Image,
        *,
        solution: Mapping[str, FileEntry] | None = None,
        pins: Pins | None = None,
        limits: Limits | None = None,
        look: bool = False,
    ) -> AsyncIterator[Solved]:
        """As `run_solution`, not graded: for those who look at the snapshot, or grade it more than once. `limits`:
        others than the task's own for an agent. With `look` it is told which processes lived.

        Raises:
            SandboxError: infrastructure; UnhealthyError among them: the environment's healthcheck fails.
        """
        files = task.part("solution") if solution is None else solution
        mounts = (Mount(self._unpack(files), "/solution"),)
        limits = limits or task.agent_limits
        started_s = time.time()
        sandbox = await self._backend.start(
            image, pins=_pins(image, task.config.agent.user, pins), limits=limits, mounts=mounts
        )
        try:
            await await_healthy(sandbox, task.config.environment.healthcheck, limits)
            result = await sandbox.exec(
                "/solution/solve.sh",
                cwd=image.workdir,
                env={"DEBIAN_FRONTEND": "noninteractive", **resolve_env(task.config.solution.env)},
                limits=limits,
            )
            _blame_the_machine(result, "solution")
            left = await self.leave(task, sandbox, look=look)
        except BaseException:
            await sandbox.close()
            raise
        try:
            yield Solved(
                result=result,
                snapshot=left.snapshot,
                started_s=started_s,
                processes=left.processes,
                warnings=left.warnings,
            )
        finally:
            await self._backend.drop(left.snapshot)

    async def leave(self, task: HarborTask, sandbox: Sandbox, *, look: bool = False) -> Leaving:
        """Ends an agent's sandbox as a snapshot to be graded, after the collect hooks of a separate verifier; with
        `look` it also says which processes lived. Raises SandboxError.
        """
        processes = await living_processes(sandbox) if look else ()
        warnings = await run_hooks(sandbox, task.config, task.agent_limits) if task.separate else ()
        return Leaving(snapshot=await sandbox.snapshot(), processes=processes, warnings=warnings)

    async def run_noop(
        self,
        task: HarborTask,
        image: Image,
        *,
        pins: Pins | None = None,
        tests: Mapping[str, FileEntry] | None = None,
        verifier_env: Mapping[str, str] | None = None,
    ) -> Grade | EnvironmentBroken:
        """The grade of an untouched environment. Raises SandboxError."""
        return await self.grade(task, image, None, pins=pins, tests=tests, verifier_env=verifier_env)

    async def _seat(
        self,
        task: HarborTask,
        image: Image,
        snapshot: SnapshotId | None,
        room: Path,
        pins: Pins | None,
        tests: Mapping[str, FileEntry] | None,
    ) -> "_Seat":
        """Where the verifier runs, with all that it may see."""
        logs = room / LOGS
        logs.mkdir()
        logs.chmod(0o777)
        mounts = [Mount(logs, "/logs/verifier", writable=True)]
        own_tests = task.has_verifier_image and tests is None
        if not own_tests:
            mounts.append(Mount(self._unpack(task.part("tests") if tests is None else tests), "/tests"))
        outputs = None
        if task.separate:
            outputs = await self._outputs(task, image, snapshot, pins)
            image, snapshot = await self._builder.build(task, verifier=True), None
        pins = _pins(image, task.config.verifier.user, pins)
        return _Seat(image, pins, tuple(mounts), snapshot, outputs, own_tests)

    @asynccontextmanager
    async def _verified(
        self, task: HarborTask, seat: "_Seat", room: Path, env: Mapping[str, str]
    ) -> AsyncIterator[tuple[ExecResult, Sandbox]]:
        """What test.sh came to, and the sandbox as it left it."""
        limits = task.verifier_limits
        sandbox = await self._backend.start(
            seat.image,
            pins=seat.pins,
            limits=limits,
            mounts=seat.mounts,
            snapshot=seat.snapshot,
            trusted_system=True,
        )
        try:
            if seat.snapshot is None:
                await await_healthy(sandbox, task.verifier_environment.healthcheck, limits)
            if seat.outputs is not None:
                await restore(sandbox, seat.outputs, room)
            result = await sandbox.exec(
                "chmod +x /tests/test.sh; /tests/test.sh" if seat.own_tests else "/tests/test.sh",
                cwd=seat.image.workdir,
                env={**resolve_env(task.config.verifier.env), **env},
                limits=limits,
            )
            yield result, sandbox
        finally:
            await sandbox.close()

    async def _outputs(self, task: HarborTask, image: Image, snapshot: SnapshotId | None, pins: Pins | None) -> Outputs:
        """What the agent declared and left, or what an untouched environment has there."""
        if snapshot is not None:
            return await self._collect(task, image, snapshot)
        limits = task.agent_limits
        sandbox = await self._backend.start(image, pins=_pins(image, task.config.agent.user, pins), limits=limits)
        try:
            await await_healthy(sandbox, task.config.environment.healthcheck, limits)
            left = await self.leave(task, sandbox)
        except BaseException:
            await sandbox.close()
            raise
        try:
            return await self._collect(task, image, left.snapshot)
        finally:
            await self._backend.drop(left.snapshot)

    async def _collect(self, task: HarborTask, image: Image, snapshot: SnapshotId) -> Outputs:
        sandbox = await self._looking(task, image, snapshot)
        try:
            return await collect(sandbox, task.config.artifacts)
        finally:
            await sandbox.close()

    async def _undeclared(self, task: HarborTask, image: Image, solved: Solved) -> tuple[str, ...]:
        sandbox = await self._looking(task, image, solved.snapshot)
        try:
            return await undeclared(sandbox, solved.started_s, task.config.artifacts)
        finally:
            await sandbox.close()

    async def _looking(self, task: HarborTask, image: Image, snapshot: SnapshotId) -> Sandbox:
        """A sandbox that reads a snapshot as root, with the image's own programs."""
        return await self._backend.start(
            image, pins=Pins(), limits=task.agent_limits, snapshot=snapshot, trusted_system=True
        )

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


@dataclass(frozen=True)
class _Seat:
    """A verifier's place: what its sandbox starts from, and what it is given."""

    image: Image
    pins: Pins
    mounts: tuple[Mount, ...]
    snapshot: SnapshotId | None
    outputs: Outputs | None
    own_tests: bool
    """/tests is part of the image."""


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
