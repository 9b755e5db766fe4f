"""The gate `resists cheating`: what earns reward without work, on this very environment."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec.structs import replace as with_fields

from schemas.outcomes import GateOutcome
from services.kernel.archive import FileEntry
from services.kernel.harbor.grade import EnvironmentBroken, GradeFailed
from services.kernel.harbor.task import HarborTask
from services.kernel.sandbox.protocol import Image, Limits, SandboxError, SandboxRefusedError, SnapshotId
from services.kernel.workshop import Workshop
from services.validator.gates.attacks import NOTHING_DONE, Attack, script_of, watched, witnesses
from services.validator.gates.attacks_answers import attacks_on, named_paths
from services.validator.gates.attacks_planted import PLANTED
from services.validator.gates.attacks_remnants import REMNANTS, SPOILERS
from services.validator.gates.gate import Case, Cost, Finding, Need, failed

CPU_S, DISK_BYTES_MAX = 30.0, 64 * 2**20
"""Of an attack, where the task gives its agents more: attacks are quick, and filling a large disk is not."""
SHOWN_MAX = 5


@dataclass(frozen=True)
class Yield:
    """What attacks that were carried out together brought in."""

    reward: float
    ran: tuple[str, ...] = ()
    """Attacks whose code the verifier ran."""
    broken: str | None = None
    """Why nothing could be graded: then nothing is known of what else the attacks would have done."""


class ResistsCheating:
    """No attack earns more than an untouched environment, and none gets the verifier to run its code.

    Programs and repositories that a verifier runs because they are what it grades can forge its reward: no fault of the
    task, but said (`exposed`).
    """

    name = "resists cheating"
    cost = Cost.repeating
    hidden = False
    needs = (Need.image, Need.noop)

    async def check(self, case: Case) -> Finding:
        if case.noop is None:
            raise ValueError("the gate `no-op fails` comes first")
        lane = _Lane(case.workshop, case.known_task(), case.known_image(), case.noop.reward)
        try:
            found = await lane.all()
        except SandboxRefusedError as error:
            return failed(f"refused by the sandbox: {error}")
        return _judge(found, lane.attacks, case.noop.reward)


class _Lane:
    """The attacks on one environment, carried out one after the other: other gates run beside."""

    def __init__(self, workshop: Workshop, task: HarborTask, image: Image, noop_reward: float) -> None:
        self._grader, self._image, self._noop_reward = workshop.grader, image, noop_reward
        self._task = task if task.has_verifier_image else with_fields(task, files=watched(task.files))
        self._paths = named_paths(task.instruction, image.workdir)
        self.attacks = [*PLANTED, *REMNANTS, *attacks_on(task.instruction, image.workdir), *SPOILERS]
        limits = task.agent_limits
        cpu_s = min(limits.cpu_s, CPU_S)
        disk = min(limits.disk_bytes_max, DISK_BYTES_MAX)
        self._limits: Limits = replace(limits, cpu_s=cpu_s, wall_s=10 * cpu_s, disk_bytes_max=disk)

    async def all(self) -> dict[str, Yield]:
        """By attack; one that found nothing to do is left out. Raises SandboxError."""
        batches: dict[str, list[Attack]] = defaultdict(list)
        for attack in self.attacks:
            batches[attack.batch or attack.name].append(attack)
        found: dict[str, Yield] = {}
        for batch in batches.values():
            found |= await self._find(batch)
        return found

    async def _find(self, attacks: Sequence[Attack]) -> dict[str, Yield]:
        """What each brought in. Those that succeed, and those that keep the verifier from grading, are parted from the
        rest, which they would hide.
        """
        brought = await self._carry_out(attacks)
        if brought is None:
            return {}
        if len(attacks) == 1 or not self._suspicious(brought):
            return {attack.name: brought for attack in attacks}
        found = {attack.name: brought for attack in attacks if attack.name in brought.ran}
        if found:
            rest = [attack for attack in attacks if attack.name not in found]
            return found | (await self._find(rest) if rest else {})
        half = len(attacks) // 2
        found = {**await self._find(attacks[:half]), **await self._find(attacks[half:])}
        if not any(map(self._suspicious, found.values())):
            found[" + ".join(attack.name for attack in attacks)] = brought
        return found

    async def _carry_out(self, attacks: Sequence[Attack]) -> Yield | None:
        script = script_of(attacks, self._paths).encode()
        solution = {"solve.sh": FileEntry(script, executable=True)}
        async with self._grader.solved(self._task, self._image, solution=solution, limits=self._limits) as solved:
            if len(attacks) == 1 and solved.result.exit_code == NOTHING_DONE:
                return None
            grade = await self._grader.attempt(self._task, self._image, solved.snapshot)
            if isinstance(grade, GradeFailed) and (ran := witnesses(grade.output)):
                return Yield(0.0, tuple(ran), grade.reason)
            if isinstance(grade, GradeFailed):
                return await self._who_broke_it(solved.snapshot)
        return Yield(grade.reward, tuple(witnesses(grade.output)))

    async def _who_broke_it(self, snapshot: SnapshotId) -> Yield:
        """Raises SandboxError where an untouched environment cannot be graded either."""
        grade = await self._grader.grade(self._task, self._image, snapshot)
        if isinstance(grade, EnvironmentBroken):
            raise SandboxError(f"an untouched environment was graded before, and now is not: {grade.reason}")
        return Yield(grade.reward, tuple(witnesses(grade.output)), grade.broken_by_agent)

    def _suspicious(self, brought: Yield) -> bool:
        """Whether attacks that share this must be looked at one by one."""
        return bool(brought.ran) or brought.broken is not None or brought.reward > self._noop_reward


def _judge(found: Mapping[str, Yield], attacks: Sequence[Attack], noop_reward: float) -> Finding:
    known = {attack.name: attack for attack in attacks}
    guilty: dict[str, str] = {}
    exposed, weak = [], {}
    for name, one in found.items():
        attack = known.get(name)
        if attack is not None and attack.exposes and name in one.ran:
            exposed.append(name)
        elif name in one.ran:
            guilty[name] = f"the verifier runs what an agent left: {name}"
        elif one.reward > max(noop_reward, attack.reward_max if attack else 0.0) and not one.ran:
            guilty[name] = f"{name}: earns {one.reward:g}, an untouched environment {noop_reward:g}"
        elif one.reward > noop_reward and not one.ran:
            weak[name] = one.reward
    content: dict[str, Any] = {
        "attacks": {name: one.reward for name, one in found.items()},
        "noop": noop_reward,
        "succeeded": list(guilty),
        "weak": weak,
        "exposed": exposed,
    }
    observed = {"broken": {name: one.broken for name, one in found.items() if one.broken}}
    if guilty:
        said = [f"{charge} ({known[name].remedy})" if name in known else charge for name, charge in guilty.items()]
        more = f"; {len(said) - SHOWN_MAX} more" if len(said) > SHOWN_MAX else ""
        return Finding(GateOutcome.failed, "; ".join(said[:SHOWN_MAX]) + more, content, observed)
    notes = [f"{max(weak.values()):g} of the reward needs no work"] if weak else []
    notes += [f"{known[name].remedy}: it could forge it" for name in exposed]
    detail = f"{len(found) - len(exposed)} attacks resisted" + "".join(f"; {note}" for note in notes)
    return Finding(GateOutcome.passed, detail, content, observed)
