"""The gate `not flaky`: oracle and no-op again, in fresh sandboxes in other surroundings; every test ends the same."""

from dataclasses import dataclass
from typing import Literal

from services.kernel.harbor.grade import EnvironmentBroken, Grade
from services.kernel.sandbox.protocol import Ended
from services.validator.gates.gate import Case, Cost, Finding, Need, failed, passed
from services.validator.gates.surroundings import (
    HERE,
    Surroundings,
    elsewhere,
    not_varied,
    under_load,
    with_test_order,
)

SHOWN_MAX = 5
"""Tests named in a detail."""
CONFIDENCE = 0.95
CONTROLS = 2
"""Runs with nothing varied before a variation is blamed: chance that strikes every second run stays unseen in one of
four cases."""


@dataclass(frozen=True)
class Difference:
    """One run that did not end as the first one of its kind."""

    who: Literal["oracle", "no-op"]
    what: str


class NotFlaky:
    """Each repeat runs oracle and no-op once; the first also verifies the oracle's state twice. What differs is looked
    for: one more run each with a single variation names the guilty, one with none tells what differs by itself."""

    name = "not flaky"
    cost = Cost.repeating
    hidden = False
    needs = (Need.image, Need.oracle, Need.noop)

    async def check(self, case: Case) -> Finding:
        task, image, repeats = case.known_task(), case.known_image(), case.rules.flaky_repeats
        for repeat in range(repeats):
            there = elsewhere(task, image, repeat)
            async with under_load(loaded=there.loaded):
                found = await _oracle_differs(case, there, gradings=1 if repeat else 2) or await _noop_differs(
                    case, there
                )
            if found is not None:
                guilty = await _guilty(case, found.who, there)
                told = ", ".join(guilty) or "no single one: all together, or chance"
                return failed(
                    f"{found.who} under other surroundings: {found.what}; guilty: {told}",
                    repeat=repeat + 1,
                    varied=list(there.varied()),
                    guilty=list(guilty),
                )
        runs = 2 + 2 * repeats
        bound = flake_rate_upper(runs)
        return passed(
            f"{runs} runs agree; flake rate below {bound:.2f} with {CONFIDENCE:.0%} confidence",
            runs=runs,
            flake_rate_upper_95=bound,
            varied=list(elsewhere(task, image, 0).varied()),
            not_varied=list(not_varied(task, image)),
        )


def flake_rate_upper(runs: int) -> float:
    """Upper bound of the rate of deviating runs when none of `runs` independent ones did (exact binomial)."""
    return float(1 - (1 - CONFIDENCE) ** (1 / runs))


async def _guilty(case: Case, who: str, there: Surroundings) -> tuple[str, ...]:
    """Names of the variations that alone make a difference; `by itself` where none is needed."""
    differs = _oracle_differs if who == "oracle" else _noop_differs
    for _ in range(CONTROLS):
        if await differs(case, HERE):
            return ("by itself",)
    guilty = []
    for name in there.varied():
        alone = there.only(name)
        async with under_load(loaded=alone.loaded):
            if await differs(case, alone):
                guilty.append(name)
    return tuple(guilty)


async def _oracle_differs(case: Case, there: Surroundings, gradings: int = 1) -> Difference | None:
    grader, image, before = case.workshop.grader, case.known_image(), case.oracle
    task = with_test_order(case.known_task(), there.test_order)
    async with grader.solved(task, image, pins=there.pins) as solved:
        if solved.result.ended is not Ended.exited:
            return Difference("oracle", f"the solution was stopped by its {solved.result.ended}")
        for grading in range(gradings):
            grade = await grader.grade(task, image, solved.snapshot, pins=there.pins)
            if what := _difference(grade, before):
                again = ", graded a second time" if grading else ""
                return Difference("oracle", what + again)
    return None


async def _noop_differs(case: Case, there: Surroundings) -> Difference | None:
    task = with_test_order(case.known_task(), there.test_order)
    grade = await case.workshop.grader.run_noop(task, case.known_image(), pins=there.pins)
    what = _difference(grade, case.noop)
    return Difference("no-op", what) if what else None


def _difference(grade: Grade | EnvironmentBroken, before: Grade | None) -> str | None:
    if before is None:
        raise ValueError("the gates `oracle passes` and `no-op fails` come first")
    if isinstance(grade, EnvironmentBroken):
        return grade.reason
    names = sorted({*grade.tests, *before.tests})
    changed = [name for name in names if grade.tests.get(name) != before.tests.get(name)]
    if changed:
        more = f" and {len(changed) - SHOWN_MAX} more" if len(changed) > SHOWN_MAX else ""
        return f"other results of {', '.join(changed[:SHOWN_MAX])}{more}"
    return None if grade.reward == before.reward else f"reward {grade.reward:g} instead of {before.reward:g}"
