"""Gates that run the environment: builds, oracle passes, no-op fails, not flaky."""

import base64
from dataclasses import replace

from schemas.outcomes import GateOutcome
from services.kernel.harbor.dockerfile import DockerfileError
from services.kernel.harbor.grade import EnvironmentBroken, Grade, SolutionRun
from services.kernel.harbor.recipe import BuildFailedError
from services.kernel.sandbox.launch import find_faketime
from services.kernel.sandbox.protocol import Ended, Image, Pins, SandboxRefusedError
from services.validator.gates.gate import Case, Cost, Finding, Need, failed, passed

NOOP_REWARD_MAX = 0.5
"""An untouched environment must earn less (paper)."""
SHOWN_BYTES = 2000
ELSEWHERE = Pins(hostname="elsewhere", timezone="Asia/Kathmandu", locale="C")
"""The other surroundings of the repeats. Kathmandu is 5:45 from UTC: neither whole nor half an hour."""
CLOCK_SHIFT_S = 400 * 86_400


class Builds:
    """The image builds within its limits, offline."""

    name = "builds"
    cost = Cost.building
    hidden = False
    needs = (Need.task,)

    async def check(self, case: Case) -> Finding:
        try:
            case.image = await case.workshop.builder.build(case.known_task())
        except (DockerfileError, SandboxRefusedError) as error:
            return failed(str(error))
        except BuildFailedError as error:
            return Finding(GateOutcome.failed, str(error), {}, {"output": _shown(error.output)})
        return passed(image=case.image.digest)


class OraclePasses:
    """The reference solution earns exactly 1 in a fresh sandbox, and its script ends well."""

    name = "oracle passes"
    cost = Cost.running
    hidden = False
    needs = (Need.image,)

    async def check(self, case: Case) -> Finding:
        try:
            run = await case.workshop.grader.run_solution(case.known_task(), case.known_image())
        except SandboxRefusedError as error:
            return failed(f"refused by the sandbox: {error}")
        return _judge_oracle(case, run)


class NoopFails:
    """An untouched environment earns < 0.5 because tests fail, not because grading breaks."""

    name = "no-op fails"
    cost = Cost.running
    hidden = False
    needs = (Need.image,)

    async def check(self, case: Case) -> Finding:
        grade = await case.workshop.grader.run_noop(case.known_task(), case.known_image())
        if isinstance(grade, EnvironmentBroken):
            return Finding(GateOutcome.failed, grade.reason, {}, {"output": _shown(grade.output)})
        case.noop = grade
        observed = {"output": _shown(grade.output)}
        content = {"reward": grade.reward, "tests": grade.tests}
        if grade.reward >= NOOP_REWARD_MAX:
            return Finding(GateOutcome.failed, f"an untouched environment earns {grade.reward:g}", content, observed)
        if grade.tests and all(grade.tests.values()):
            return Finding(GateOutcome.failed, "no test fails on an untouched environment", content, observed)
        return Finding(GateOutcome.passed, f"reward {grade.reward:g}", content, observed)


class NotFlaky:
    """Oracle and no-op again under another hostname, time zone, locale and, where the backend can shift it, clock:
    every test gives the same result."""

    name = "not flaky"
    cost = Cost.repeating
    hidden = False
    needs = (Need.image, Need.oracle, Need.noop)

    def __init__(self, repeats: int = 1) -> None:
        self._repeats = repeats

    async def check(self, case: Case) -> Finding:
        grader, task, image = case.workshop.grader, case.known_task(), case.known_image()
        if case.oracle is None or case.noop is None:
            raise ValueError("the gates `oracle passes` and `no-op fails` come first")
        pins = _elsewhere(image)
        runs = 2
        for _ in range(self._repeats):
            oracle = await grader.run_solution(task, image, pins=pins)
            noop = await grader.run_noop(task, image, pins=pins)
            runs += 2
            for who, grade, before in (("oracle", oracle.grade, case.oracle), ("no-op", noop, case.noop)):
                if difference := _difference(grade, before):
                    return failed(f"{who} under other surroundings: {difference}", varied=_varied(pins))
        bound = 1 - float(0.05 ** (1 / runs))
        return passed(
            f"{runs} runs agree; flake rate below {bound:.2f} with 95% confidence",
            runs=runs,
            flake_rate_upper_95=bound,
            varied=_varied(pins),
        )


def _judge_oracle(case: Case, run: SolutionRun) -> Finding:
    observed = {"solution_output": _shown(run.output)}
    if isinstance(run.grade, EnvironmentBroken):
        observed["output"] = _shown(run.grade.output)
        return Finding(GateOutcome.failed, run.grade.reason, {}, observed)
    grade = run.grade
    observed["output"] = _shown(grade.output)
    case.oracle = grade
    content = {"exit_code": run.exit_code, "reward": grade.reward, "tests": grade.tests}
    if run.ended is not Ended.exited:
        return Finding(GateOutcome.failed, f"the solution was stopped by its {run.ended}", content, observed)
    if grade.reward != 1.0:
        wrong = ", ".join(sorted(name for name, good in grade.tests.items() if not good)[:5])
        return Finding(GateOutcome.failed, f"the solution earns {grade.reward:g} ({wrong})", content, observed)
    if run.exit_code != 0:
        return Finding(GateOutcome.failed, f"the solution ends with exit code {run.exit_code}", content, observed)
    return Finding(GateOutcome.passed, f"{len(grade.tests)} tests", content, observed)


def _difference(grade: Grade | EnvironmentBroken, before: Grade) -> str | None:
    if isinstance(grade, EnvironmentBroken):
        return grade.reason
    names = sorted({*grade.tests, *before.tests})
    changed = [name for name in names if grade.tests.get(name) != before.tests.get(name)]
    if changed:
        return f"other results of {', '.join(changed[:5])}"
    return None if grade.reward == before.reward else f"reward {grade.reward:g} instead of {before.reward:g}"


def _elsewhere(image: Image) -> Pins:
    """Other surroundings; the clock is shifted where the image holds what that needs."""
    return replace(ELSEWHERE, clock_offset_s=CLOCK_SHIFT_S if find_faketime(image) else 0)


def _varied(pins: Pins) -> list[str]:
    return ["hostname", "time zone", "locale", *(["clock"] if pins.clock_offset_s else [])]


def _shown(output: bytes) -> str:
    """Raw bytes for the observation, base64, head only."""
    return base64.b64encode(output[:SHOWN_BYTES]).decode()
