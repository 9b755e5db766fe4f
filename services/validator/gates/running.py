"""Gates that run the environment once: builds, oracle passes, no-op fails."""

import base64

from schemas.outcomes import GateOutcome
from services.kernel.harbor.dockerfile import DockerfileError
from services.kernel.harbor.grade import EnvironmentBroken, SolutionRun
from services.kernel.harbor.recipe import BuildFailedError, UnavailableError
from services.kernel.sandbox.protocol import Ended, SandboxRefusedError
from services.validator.gates.causes import Cause, network_asked, why_it_failed
from services.validator.gates.gate import Case, Cost, Finding, Need, failed, passed

NOOP_REWARD_MAX = 0.5
"""An untouched environment must earn less (paper)."""
SHOWN_BYTES = 2000


class Builds:
    """The image builds within its limits, offline."""

    name = "builds"
    cost = Cost.building
    hidden = False
    needs = (Need.task,)

    async def check(self, case: Case) -> Finding:
        task, builder = case.known_task(), case.workshop.builder
        try:
            case.image = await builder.build(task)
            verifier = await builder.build(task, verifier=True) if task.separate else None
        except (UnavailableError, DockerfileError, SandboxRefusedError, BuildFailedError) as error:
            lacking = {"unsupported": [str(error)]} if isinstance(error, UnavailableError) else {}
            observed = {"output": _shown(error.output)} if isinstance(error, BuildFailedError) else {}
            return Finding(GateOutcome.failed, str(error), lacking, observed)
        images = {"image": case.image.digest} | ({"verifier_image": verifier.digest} if verifier else {})
        return passed(**images)


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
    """An untouched environment earns < 0.5 because tests are run and fail, not because they cannot be run."""

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
        cause, reason = why_it_failed(grade)
        content = {"reward": grade.reward, "tests": grade.tests, "cause": cause, "reason": reason}
        if grade.reward >= NOOP_REWARD_MAX:
            return Finding(GateOutcome.failed, f"an untouched environment earns {grade.reward:g}", content, observed)
        if grade.tests and all(grade.tests.values()):
            return Finding(GateOutcome.failed, "no test fails on an untouched environment", content, observed)
        if cause is Cause.environment:
            return Finding(GateOutcome.failed, f"fails by an {cause}, not by a test: {reason}", content, observed)
        told = f"{reason}" if cause is Cause.unknown else f"by {cause}"
        return Finding(GateOutcome.passed, f"reward {grade.reward:g}, {told}", content, observed)


def _judge_oracle(case: Case, run: SolutionRun) -> Finding:
    shown = {"solution_output": _shown(run.output), "output": _shown(run.grade.output)}
    observed = {**shown, "left_processes": list(run.left_processes)}
    wanted = network_asked(run.output) or network_asked(run.grade.output)
    hint = f"; {wanted}, and none is given" if wanted else ""
    if isinstance(run.grade, EnvironmentBroken):
        return Finding(GateOutcome.failed, run.grade.reason + hint, {}, observed)
    grade = run.grade
    case.oracle = grade
    content = {"exit_code": run.exit_code, "reward": grade.reward, "tests": grade.tests}
    if run.ended is not Ended.exited:
        return Finding(GateOutcome.failed, f"the solution was stopped by its {run.ended}{hint}", content, observed)
    if grade.reward != 1.0:
        wrong = grade.broken_by_agent or why_it_failed(grade)[1]
        why = f"({wrong}, and none is given)" if wrong == wanted else f"({wrong}){hint}"
        code = f"; its script ends with exit code {run.exit_code}" if run.exit_code else ""
        told = f"the solution earns {grade.reward:g} {why}{code}{_left(run)}"
        return Finding(GateOutcome.failed, told, content, observed)
    if run.exit_code != 0:
        return Finding(GateOutcome.failed, f"the solution ends with exit code {run.exit_code}{hint}", content, observed)
    told = f"{len(grade.tests)} tests" if grade.tests else "the verifier reports no tests"
    return Finding(GateOutcome.passed, told, content, observed)


def _left(run: SolutionRun) -> str:
    """What the solution did that did not reach the tests."""
    hints = []
    if run.left_processes:  # their names are an observation: one may not have become its program yet
        hints.append("it leaves processes, which are gone when tests run")
    if run.undeclared:
        hints.append(f"it writes what no artifact declares: {', '.join(run.undeclared)}")
    return "".join(f"; {hint}" for hint in (*hints, *run.warnings))


def _shown(output: bytes) -> str:
    """Raw bytes for the observation, base64, head only."""
    return base64.b64encode(output[:SHOWN_BYTES]).decode()
