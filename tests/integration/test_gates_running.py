"""Gates that run an environment, on tasks with a fault that only running shows, in real sandboxes."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from schemas.outcomes import GateOutcome
from services.kernel.sandbox.launch import find_faketime
from services.kernel.workshop import Workshop
from services.validator.gates.flaky import NotFlaky, flake_rate_upper
from services.validator.gates.gate import Finding
from services.validator.gates.reading import WellFormed
from services.validator.gates.running import Builds, NoopFails, OraclePasses
from tests.support.gate_runs import HALF_DONE, SOLVE, TWO_TESTS, Changes, only_where, solved, stopped_at
from tests.support.harbor_tasks import TEST_SH, TOML, greeting
from tests.support.pytest_verifier import pytest_task
from tests.support.shop import case_of, open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    async with open_shop(tmp_path_factory.mktemp("running")) as opened:
        yield opened


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tests/test.sh": TWO_TESTS}, "the solution earns 0.5 (b)"),
        ({"solution/solve.sh": SOLVE + "echo hi > hello.txt\nfalse\necho on\n"}, "ends with exit code 1"),
        (
            {
                "solution/solve.sh": SOLVE + "echo hi > hello.txt\nwhile :; do :; done\n",
                "task.toml": TOML.replace("timeout_sec = 20.0\n[verifier]", "timeout_sec = 0.3\n[verifier]"),
            },
            "stopped by its cpu_limit",
        ),
        ({"solution/solve.sh": SOLVE}, "earns 0 (says_hi)"),
        ({"solution/solve.sh": "#!/no/such/shell\necho hi > /app/hello.txt\n"}, "earns 0"),
        ({"tests/test.sh": "#!/bin/bash\nexit 3\n"}, "no reward file"),
        ({"tests/test.sh": "#!/bin/bash\necho 1.5 > /logs/verifier/reward.txt\n"}, "not in [0, 1]"),
        ({"task.toml": TOML.replace("[verifier]", 'user = "nobody-here"\n[verifier]')}, "nobody-here"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_solution_that_does_not_earn_one_and_end_well_fails(
    shop: Workshop, changes: dict[str, str | bytes | None], reason: str
) -> None:
    assert reason in (await stopped_at(shop, greeting(changes), "oracle passes")).detail


NEEDS_HELLO = TEST_SH.replace("status=failed", "[ -e /app/hello.txt ] || exit 4\nstatus=failed")
ALWAYS_PASSES = TEST_SH.replace("if pass; then status=passed", "status=passed; if pass; then true")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (HALF_DONE | {"environment/files/more.txt": "x"}, "an untouched environment earns 0.5"),
        ({"environment/files/hello.txt": "hi\n"}, "an untouched environment earns 1"),
        ({"tests/test.sh": NEEDS_HELLO}, "no reward file"),
        ({"tests/test.sh": ALWAYS_PASSES}, "no test fails on an untouched environment"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_environment_that_pays_for_nothing_or_cannot_grade_nothing_fails(
    shop: Workshop, changes: dict[str, str | bytes | None], reason: str
) -> None:
    assert reason in (await stopped_at(shop, greeting(changes), "no-op fails")).detail


RUN_PYTEST = "python3 -m pytest -p no:cacheprovider -rA /tests/test_outputs.py"
PAYS = "[ -e /app/hello.txt ] && reward=1 || reward=0\necho $reward > /logs/verifier/reward.txt\n"
IMPORTS = "import sys\nsys.path.insert(0, '/app')\nimport answer\n\ndef test_answer():\n    assert answer.VALUE == 42\n"


async def test_a_no_op_fails_by_a_test_and_not_since_none_could_be_run(shop: Workshop) -> None:
    nothing_runs = await stopped_at(
        shop, greeting({"tests/test.sh": "#!/bin/bash\npytest -q /tests\n" + PAYS}), "no-op fails"
    )
    assert nothing_runs.detail.startswith(
        "fails by an error of the environment, not by a test: the tests could not be run"
    )
    assert nothing_runs.content["cause"] == "error of the environment"
    unloadable = pytest_task(RUN_PYTEST) | {
        "tests/test_outputs.py": IMPORTS,
        "solution/solve.sh": SOLVE + "echo VALUE = 42 > answer.py\n",
    }
    case = case_of(shop, greeting(unloadable))
    for gate in (WellFormed(), Builds(), OraclePasses()):
        assert (await gate.check(case)).outcome is GateOutcome.passed
    found = await NoopFails().check(case)
    assert found.outcome is GateOutcome.failed
    assert "a test file does not load" in found.detail


async def test_a_no_op_that_fails_by_a_test_says_so_and_a_silent_verifier_too(shop: Workshop) -> None:
    for changes, detail in (
        ({}, "reward 0, by assertion"),
        (pytest_task(RUN_PYTEST), "reward 0, by assertion"),
        ({"tests/test.sh": "#!/bin/bash\n" + PAYS}, "reward 0, the verifier reports no tests"),
    ):
        case = await solved(shop, changes)
        assert (await NoopFails().check(case)).detail == detail


async def test_an_oracle_that_wants_the_network_is_told_that_there_is_none(shop: Workshop) -> None:
    wants = "echo 'curl: (6) Could not resolve host: example.org' >&2\nexit 6\n"
    found = await stopped_at(shop, greeting({"solution/solve.sh": "#!/bin/bash\n" + wants}), "oracle passes")
    assert "asks for the network: Could not resolve host: example.org, and none is given" in found.detail


async def test_a_verifier_that_wants_the_network_is_told_so_once(shop: Workshop) -> None:
    wants = "#!/bin/bash\necho 'curl: (6) Could not resolve host: example.org' >&2\necho 0 >/logs/verifier/reward.txt\n"
    found = await stopped_at(shop, greeting({"tests/test.sh": wants}), "oracle passes")
    told = "(asks for the network: Could not resolve host: example.org, and none is given)"
    assert found.detail == f"the solution earns 0 {told}"


async def test_a_solution_that_breaks_off_is_told_so(shop: Workshop) -> None:
    found = await stopped_at(shop, greeting({"solution/solve.sh": "#!/bin/bash\nexit 4\n"}), "oracle passes")
    assert found.detail == "the solution earns 0 (says_hi); its script ends with exit code 4"


def named(name: str) -> str:
    """A verifier whose only test has the name that bash makes of `name`."""
    return TEST_SH.replace('"name":"says_hi"', '"name":"%s"').replace('"$status" >', f'"{name}" "$status" >')


IDLE_DIFFERS = named("$([ -e /app/hello.txt ] && echo done || hostname)")


async def flaky(shop: Workshop, changes: Changes, **rules: float) -> Finding:
    return await NotFlaky().check(await solved(shop, changes, **rules))


@pytest.mark.parametrize(
    ("changes", "reason", "guilty"),
    [
        ({"tests/test.sh": only_where('[ "$(hostname)" = envwheel ]')}, "oracle under other", ["hostname"]),
        ({"tests/test.sh": only_where('[ "$(date +%Z)" = UTC ]')}, "other results of says_hi", ["time zone"]),
        (
            {"tests/test.sh": only_where("[ \"$(printf '\\303\\244' | wc -m)\" = 1 ]")},
            "other results of says",
            ["locale"],
        ),
        ({"tests/test.sh": named("t$RANDOM$RANDOM")}, "oracle under other surroundings: other results", ["by itself"]),
        (
            {"solution/solve.sh": SOLVE + '[ "$(hostname)" = envwheel ] && echo hi > hello.txt\n'},
            "oracle",
            ["hostname"],
        ),
        ({"tests/test.sh": IDLE_DIFFERS}, "no-op under other surroundings: other results of elsewhere", ["hostname"]),
    ],
    ids=["hostname", "time zone", "locale", "chance", "solution", "no-op"],
)
async def test_results_that_hang_on_the_surroundings_are_flaky_and_the_guilty_is_named(
    shop: Workshop, changes: Changes, reason: str, guilty: list[str]
) -> None:
    found = await flaky(shop, changes)
    assert found.outcome is GateOutcome.failed
    assert reason in found.detail
    assert found.content["guilty"] == guilty
    assert found.detail.endswith(f"guilty: {guilty[0]}")
    assert {"hostname", "load"} <= set(found.content["varied"])


async def test_what_only_differs_with_two_things_varied_has_no_single_guilty(shop: Workshop) -> None:
    either = only_where('{ [ "$(hostname)" = envwheel ] || [ "$(date +%Z)" = UTC ]; }')
    found = await flaky(shop, {"tests/test.sh": either})
    assert (found.outcome, found.content["guilty"]) == (GateOutcome.failed, [])
    assert "no single one" in found.detail


async def test_more_repeats_see_more_and_say_how_much(shop: Workshop) -> None:
    on_second = only_where('[ "$(hostname)" != other-host ]')
    once = await flaky(shop, {"tests/test.sh": on_second}, flaky_repeats=1)
    assert once.outcome is GateOutcome.passed
    assert (once.content["runs"], once.content["flake_rate_upper_95"]) == (4, flake_rate_upper(4))
    assert once.detail == "4 runs agree; flake rate below 0.53 with 95% confidence"
    twice = await flaky(shop, {"tests/test.sh": on_second}, flaky_repeats=2)
    assert (twice.outcome, twice.content["repeat"], twice.content["guilty"]) == (GateOutcome.failed, 2, ["hostname"])


async def test_what_is_not_varied_is_said(shop: Workshop) -> None:
    case = await solved(shop, {})
    found = await NotFlaky().check(case)
    told = [each.partition(":")[0] for each in found.content["not_varied"]]
    clock = [] if find_faketime(case.known_image()) else ["clock"]
    assert told == [*clock, "test order", "user"]
    assert ("clock" in found.content["varied"]) is (not clock)


ORDERED = """
from pathlib import Path
seen = []

def test_first():
    seen.append(1)
    assert Path("/app/hello.txt").exists()

def test_second():
    assert seen == [1]
    assert Path("/app/hello.txt").exists()
"""


async def test_tests_that_need_their_order_are_flaky(shop: Workshop) -> None:
    found = await flaky(shop, {**pytest_task(RUN_PYTEST), "tests/test_outputs.py": ORDERED}, flaky_repeats=1)
    assert found.outcome is GateOutcome.failed
    assert "other results of ../tests/test_outputs.py::test_second" in found.detail
    assert found.content["guilty"] == ["test order"]


async def test_tests_in_any_order_pass_and_their_names_come_from_what_pytest_prints(shop: Workshop) -> None:
    case = await solved(shop, pytest_task(RUN_PYTEST), flaky_repeats=1)
    assert case.oracle is not None
    assert set(case.oracle.tests.values()) == {True}
    assert len(case.oracle.tests) == 2
    found = await NotFlaky().check(case)
    assert found.outcome is GateOutcome.passed
    assert "test order" in found.content["varied"]
