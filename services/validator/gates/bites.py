"""The gate `verifier bites`: a verifier that pays for a broken solution does not tell right from wrong."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from msgspec import structs

from schemas.outcomes import GateOutcome
from services.kernel.archive import FileEntry
from services.kernel.harbor.grade import EnvironmentBroken, Solved, TooSlowError
from services.kernel.harbor.task import HarborTask
from services.kernel.sandbox.launch import uid_of
from services.kernel.sandbox.protocol import (
    ExecResult,
    Limits,
    Pins,
    Sandbox,
    SandboxError,
    SandboxRefusedError,
    SnapshotId,
)
from services.validator.gates.gate import Case, Cost, Finding, Need
from services.validator.gates.mutants import (
    LINES_MAX,
    SCRIPT,
    SCRIPT_BYTES_MAX,
    SPLIT,
    VALID,
    Kind,
    Mutant,
    choose,
    file_mutants,
    is_shell,
    nothing,
    output_mutants,
    read_spans,
    script_mutants,
    used_files,
)
from services.validator.gates.states import State, Twice, read_state

JUDGED_MIN = 2
"""With fewer mutants than this the empty solution is one too."""
ALTERED_MIN = 2
"""So many altered outputs must go unnoticed before their verifier is called blind: one may be a harmless change."""
OUTPUTS_MAX = 16
OUTPUT_BYTES_MAX = 64 * 1024
"""Longer ones are not altered, only emptied."""
SHOWN_MAX = 3
"""Survivors named in a detail; the evidence has all."""


class Fate(StrEnum):
    caught = "caught"
    """It earned less than 1."""
    survived = "survived"
    equivalent = "equivalent"
    """It earned 1 since it left what the reference solution leaves: no mutant at all."""
    remade = "made again"
    """It earned 1 since the verifier itself makes what was wrong again, as after the reference solution: what the agent
    left there says nothing."""
    stopped = "stopped"
    """Busy at its wall limit: nobody can tell."""


@dataclass(frozen=True)
class Trial:
    mutant: Mutant
    fate: Fate
    reward: float | None = None
    state: State | None = None
    """Of a survivor."""
    after: State | None = None
    """Of a survivor that left another state than the reference solution: the state once it was graded."""

    def evidence(self) -> dict[str, object]:
        told = {"kind": self.mutant.kind, "where": self.mutant.where, "change": self.mutant.change}
        return {**told, "reward": self.reward, "fate": self.fate}


class VerifierBites:
    """Mutants of the reference solution lose reward. The score is the share of caught ones among those that are neither
    equivalent nor made good by the verifier itself; which are run follows from the environment's digest. A verifier
    that notices no altered output, of two or more, fails whatever the score is: it looks if there is something, and not
    at what it is."""

    name = "verifier bites"
    cost = Cost.repeating
    hidden = False
    needs = (Need.image, Need.oracle)

    async def check(self, case: Case) -> Finding:
        if case.rules.mutants_max == 0:
            return Finding(GateOutcome.skipped, "mutants_max is 0")
        if case.oracle is None or case.oracle.reward < 1.0:
            return Finding(GateOutcome.skipped, "the reference solution does not earn 1")
        trials = await _Bench(case).trials()
        fates = {fate.value: sum(trial.fate is fate for trial in trials) for fate in Fate}
        judged = fates["caught"] + fates["survived"]
        score = fates["caught"] / judged if judged else 1.0
        least = case.rules.mutation_score_min
        survivors = [
            f"{trial.mutant.kind} ({trial.mutant.where}: {trial.mutant.change})"
            for trial in trials
            if trial.fate is Fate.survived
        ]
        telling = [trial for trial in trials if trial.fate is not Fate.remade]
        altered = [trial.fate for trial in telling if trial.mutant.kind is Kind.altered]
        blind = Fate.caught not in altered and altered.count(Fate.survived) >= ALTERED_MIN
        told = f"{fates['caught']} of {judged} mutants lose reward" if judged else "no mutant could be judged"
        if blind:
            told += f"; none of {len(altered)} altered outputs is noticed"
        if fates[Fate.remade]:
            told += f"; {fates[Fate.remade]} not judged: the verifier makes again what they alter"
        if survivors:
            told += f"; these earn 1: {'; '.join(survivors[:SHOWN_MAX])}"
        content = {"score": score, "threshold": least, **fates, "mutants": [trial.evidence() for trial in trials]}
        return Finding(GateOutcome.failed if blind or score < least else GateOutcome.passed, told, content)


class _Bench:
    """One environment's mutants at work."""

    def __init__(self, case: Case) -> None:
        self._since_s = int(time.time()) - 1
        self._case, self._image = case, case.known_image()
        self._task = _with_one_date(case.known_task(), self._since_s)
        self._backend, self._grader = case.workshop.backend, case.workshop.grader
        self._rng = Random(case.digest)  # noqa: S311 - chosen anew, equally, for an equal environment
        self._solution = self._task.part("solution")
        self._cores = asyncio.Semaphore(len(os.sched_getaffinity(0)))

    async def trials(self) -> list[Trial]:
        """Raises SandboxError."""
        async with self._grader.solved(self._task, self._image) as oracle:
            state = await self._state(oracle.snapshot)
            mutants = await self._mutants(oracle.snapshot, await self._outputs(state))
            limits = _limits(self._task.agent_limits, oracle.result)
            try:
                async with asyncio.TaskGroup() as group:
                    running = [group.create_task(self._try(mutant, oracle, state, limits)) for mutant in mutants]
            except BaseExceptionGroup as failures:
                raise failures.exceptions[0] from failures
            trials = [task.result() for task in running]
            undone = any(trial.after for trial in trials)
            after = await self._after(oracle.snapshot) if undone else None
        if state is None or not any(trial.fate is Fate.survived for trial in trials):
            return trials
        async with self._grader.solved(self._task, self._image) as again:
            before = Twice(state, await self._state(again.snapshot) or state)
            graded = Twice(after, await self._after(again.snapshot) or after) if after else None
        return [replace(trial, fate=_fate(trial, before, graded)) for trial in trials]

    async def _after(self, snapshot: SnapshotId) -> State | None:
        """Once it was graded."""
        async with self._grader.graded(self._task, self._image, snapshot) as (image, left):
            return await read_state(self._backend, image, Pins(), left, self._since_s)

    async def _outputs(self, state: State | None) -> list[str]:
        """Files that the solution made or changed: those that the instruction names, else those below the working
        directory. Repositories are left out: what is in them is not told by one file."""
        if state is None:
            return []
        untouched = await self._state(None)
        written = state.contents() - (untouched.contents() if untouched else set())
        made = {path for path, _ in written if "/.git/" not in path}
        told = {path for path in made if path.rpartition("/")[2] in self._task.instruction}
        below = {path for path in made if path.startswith(self._image.workdir.rstrip("/") + "/")}
        return sorted(told or below)[:OUTPUTS_MAX]

    async def _mutants(self, solved: SnapshotId, outputs: Sequence[str]) -> list[Mutant]:
        count = self._case.rules.mutants_max
        limits, pins = self._task.agent_limits, self._pins(self._task.config.verifier.user)
        sandbox = await self._backend.start(self._image, pins=pins, limits=limits, snapshot=solved, trusted_system=True)
        try:
            candidates = []
            for path in outputs:
                candidates += output_mutants(path, await _content(sandbox, path), self._rng)
            script = self._solution[SCRIPT].content
            if is_shell(script) and len(script) <= SCRIPT_BYTES_MAX:
                head = b"\n".join(script.split(b"\n")[:LINES_MAX])
                spans = read_spans((await sandbox.exec(SPLIT, cwd="/", stdin=head)).output)
                candidates += script_mutants(script, spans, self._image.workdir, self._rng)
            elif len(script) <= SCRIPT_BYTES_MAX:
                candidates += file_mutants(SCRIPT, script, self._rng)
            for name, content in used_files(self._solution):
                candidates += file_mutants(name, content, self._rng)
            chosen = choose(candidates, 3 * count, self._rng)
            pairs = b"".join(mutant.to_validate() for mutant in chosen)
            valid = (await sandbox.exec(VALID, cwd="/", stdin=pairs)).output.split()
        finally:
            await sandbox.close()
        good = [mutant for mutant, said in zip(chosen, valid, strict=False) if said == b"good"][:count]
        return good if len(good) >= min(JUDGED_MIN, count) else [*good, nothing()][-count:]

    async def _try(self, mutant: Mutant, oracle: Solved, right: State | None, limits: Limits) -> Trial:
        async with self._cores:
            try:
                async with self._broken(mutant, oracle, limits) as snapshot:
                    grade = await self._grader.grade(self._task, self._image, snapshot)
                    if isinstance(grade, EnvironmentBroken):
                        raise SandboxError(f"the environment has graded before, and now it does not: {grade.reason}")
                    if grade.reward < 1.0:
                        return Trial(mutant, Fate.caught, grade.reward)
                    state = await self._state(snapshot)
                    after = await self._after(snapshot) if state != right else None
                    return Trial(mutant, Fate.survived, grade.reward, state, after)
            except TooSlowError:
                return Trial(mutant, Fate.stopped)

    @asynccontextmanager
    async def _broken(self, mutant: Mutant, oracle: Solved, limits: Limits) -> AsyncIterator[SnapshotId]:
        """What the mutant leaves."""
        if mutant.output is None:
            whole = self._solution.get(mutant.name, FileEntry(b"", executable=True))
            solution = {**self._solution, mutant.name: FileEntry(mutant.content, whole.executable)}
            async with self._grader.solved(self._task, self._image, solution=solution, limits=limits) as solved:
                yield solved.snapshot
            return
        pins = self._pins(self._task.config.agent.user)
        sandbox = await self._backend.start(self._image, pins=pins, limits=limits, snapshot=oracle.snapshot)
        try:
            put = ("bash", "-c", 'cat > "$1"', "put", mutant.output)
            await sandbox.exec(put, cwd="/", stdin=mutant.content)
            snapshot = (await self._grader.leave(self._task, sandbox)).snapshot
        except BaseException:
            await sandbox.close()
            raise
        try:
            yield snapshot
        finally:
            await self._backend.drop(snapshot)

    async def _state(self, snapshot: SnapshotId | None) -> State | None:
        pins = self._pins(self._task.config.verifier.user)
        return await read_state(self._backend, self._image, pins, snapshot, self._since_s)

    def _pins(self, user: str | int | None) -> Pins:
        return Pins(user_uid=uid_of(self._image, self._image.user if user is None else str(user)))


def _fate(trial: Trial, before: Twice, graded: Twice | None) -> Fate:
    """`before` and `graded`: the reference solution's states, ungraded and graded."""
    if trial.state is None:
        return trial.fate
    wrong = before.missed_by(trial.state)
    if not wrong:
        return Fate.equivalent
    if graded is None or trial.after is None or not wrong <= graded.one.paths():
        return trial.fate
    kept = wrong - trial.state.differing(trial.after)
    return trial.fate if kept or wrong & graded.missed_by(trial.after) else Fate.remade


def _with_one_date(task: HarborTask, time_s: int) -> HarborTask:
    """All commits of all solutions get one date: else each run's repository is another, and no two states are equal."""
    names = ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE", "SOURCE_DATE_EPOCH")
    dates = {name: str(time_s) if name.startswith("SOURCE") else f"{time_s} +0000" for name in names}
    solution = structs.replace(task.config.solution, env={**dates, **task.config.solution.env})
    return structs.replace(task, config=structs.replace(task.config, solution=solution))


async def _content(sandbox: Sandbox, path: str) -> bytes | None:
    try:
        return await sandbox.get(path, bytes_max=OUTPUT_BYTES_MAX)
    except (SandboxRefusedError, FileNotFoundError):
        return None


def _limits(limits: Limits, oracle: ExecResult) -> Limits:
    """A mutant that runs much longer than the true solution is lost: it need not use up all that an agent may."""
    return replace(
        limits,
        cpu_s=min(limits.cpu_s, 2 + 5 * oracle.cpu_s),
        wall_s=min(limits.wall_s, 20 + 10 * oracle.wall_s),
    )
