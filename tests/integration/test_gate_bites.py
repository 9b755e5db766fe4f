"""Verifiers that tell right from wrong, and ones that do not, under mutants of their solutions in real sandboxes."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from schemas.outcomes import GateOutcome
from services.kernel.harbor.grade import Grade
from services.kernel.sandbox.protocol import SandboxError
from services.kernel.workshop import Workshop
from services.validator.gates.bites import VerifierBites
from services.validator.gates.gate import Finding
from tests.support.gate_runs import Changes, solved
from tests.support.harbor_tasks import TOML
from tests.support.shop import open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOLVE = """#!/bin/bash
set -euo pipefail
cd /app
mkdir -p out
cat notes.txt
sort notes.txt > out/sorted.txt
wc -l < notes.txt > out/count.txt
"""
INSTRUCTION = "Sort notes.txt into out/sorted.txt and write its number of lines to out/count.txt.\n"


def verifier(*checks: str) -> str:
    """A verifier that pays the share of the checks that hold."""
    tests = "\n".join(f"if {check}; then good=$((good + 1)); fi" for check in checks)
    reward = f'awk "BEGIN {{print $good / {len(checks)}}}" > /logs/verifier/reward.txt'
    return f"#!/bin/bash\ncd /app\ngood=0\n{tests}\n{reward}\n"


SORTED, COUNTED = '[ "$(cat out/sorted.txt)" = "$(sort notes.txt)" ]', '[ "$(cat out/count.txt)" = 2 ]'


def files(*checks: str, **changes: str) -> dict[str, str | bytes | None]:
    return {
        "instruction.md": INSTRUCTION,
        "environment/files/notes.txt": "lima 7\nkilo 12\n",
        "solution/solve.sh": SOLVE,
        "tests/test.sh": verifier(*checks),
        **{name.replace("__", "/").replace("_sh", ".sh").replace("_py", ".py"): text for name, text in changes.items()},
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    async with open_shop(tmp_path_factory.mktemp("bites")) as opened:
        yield opened


async def bite(shop: Workshop, changes: Changes, **rules: float) -> Finding:
    return await VerifierBites().check(await solved(shop, changes, **rules))


def fates(found: Finding, kind: str) -> list[str]:
    return [mutant["fate"] for mutant in found.content["mutants"] if mutant["kind"] == kind]


async def test_a_verifier_that_reads_all_outputs_catches_every_mutant(shop: Workshop) -> None:
    found = await bite(shop, files(SORTED, COUNTED), mutants_max=14)
    assert found.outcome is GateOutcome.passed
    assert (found.content["score"], found.content["survived"]) == (1.0, 0)
    assert found.content["caught"] >= 8
    assert found.detail == f"{found.content['caught']} of {found.content['caught']} mutants lose reward"
    kinds = {mutant["kind"] for mutant in found.content["mutants"]}
    assert kinds == {"output altered", "output emptied", "step dropped", "value changed", "steps swapped"}
    rewards = {mutant["reward"] for mutant in found.content["mutants"] if mutant["fate"] == "caught"}
    assert rewards <= {0.0, 0.5}


async def test_a_mutant_that_leaves_what_the_solution_leaves_does_not_count(shop: Workshop) -> None:
    found = await bite(shop, files(SORTED, COUNTED), mutants_max=14)
    assert sorted(fates(found, "steps swapped")) == ["caught", "equivalent"]
    swapped = [mutant for mutant in found.content["mutants"] if mutant["fate"] == "equivalent"]
    assert [mutant["change"].startswith("sort notes.txt > out/sorted.txt") for mutant in swapped] == [True]


async def test_a_verifier_that_looks_if_outputs_are_there_is_refused(shop: Workshop) -> None:
    found = await bite(shop, files("[ -s out/sorted.txt ]", "[ -s out/count.txt ]"), mutation_score_min=0.0)
    assert found.outcome is GateOutcome.failed
    assert fates(found, "output altered") == ["survived", "survived"]
    assert set(fates(found, "output emptied")) == {"caught"}
    assert "none of 2 altered outputs is noticed" in found.detail
    assert "output altered (/app/out/" in found.detail


async def test_a_verifier_that_looks_at_half_of_the_work_has_half_the_score(shop: Workshop) -> None:
    found = await bite(shop, files(COUNTED))
    assert found.outcome is GateOutcome.failed
    assert 0.2 < found.content["score"] < found.content["threshold"] == 0.6
    assert "/app/out/sorted.txt" in found.detail
    forgiven = await bite(shop, files(COUNTED), mutation_score_min=0.2)
    assert forgiven.outcome is GateOutcome.passed
    assert forgiven.content == {**found.content, "threshold": 0.2}


MAKES = "sort notes.txt > sorted.txt\n"
MADE = '[ "$(cat sorted.txt)" = "$(sort notes.txt)" ]'


def made_by_a_program(before: str, check: str, make: str = MAKES) -> dict[str, str | bytes | None]:
    """A task that asks for make.sh and for what it writes; the verifier does something before its check."""
    test_sh = verifier(check).replace("good=0\n", f"good=0\n{before}\n")
    solve = f"#!/bin/bash\ncat > /app/make.sh <<'EOF'\n{make}EOF\nbash /app/make.sh\n"
    asked = {"instruction.md": "Write /app/make.sh, which sorts notes.txt into /app/sorted.txt, and run it.\n"}
    return files(check, tests__test_sh=test_sh, solution__solve_sh=solve) | asked


@pytest.mark.parametrize(
    "make",
    [MAKES, f"{MAKES}[ -e /solution/solve.sh ] || head -c 8 /dev/urandom | od -An -tx8 > sorted.txt\n"],
    ids=["alike", "by chance"],
)
async def test_an_output_that_the_verifier_makes_again_says_nothing(shop: Workshop, make: str) -> None:
    check = MADE if make == MAKES else "[ $(wc -w < sorted.txt) = 1 ]"
    found = await bite(
        shop, made_by_a_program("rm -f sorted.txt; bash make.sh", check, make=make), mutation_score_min=0.1
    )
    by_place = {mutant["where"]: mutant for mutant in found.content["mutants"]}
    made = [mutant for mutant in found.content["mutants"] if mutant["fate"] == "made again"]
    assert {(mutant["fate"], mutant["reward"]) for mutant in made} == {("made again", 1.0)}
    assert by_place["/app/sorted.txt"] in made
    assert not [mutant for mutant in made if mutant["where"] == "/app/make.sh"]
    assert "without bash /app/make.sh" in [mutant["change"] for mutant in made]
    assert found.content["made again"] == len(made)
    assert f"; {len(made)} not judged: the verifier makes again what they alter" in found.detail
    assert "/app/sorted.txt" not in found.detail
    judged = [mutant for mutant in found.content["mutants"] if mutant["fate"] in ("caught", "survived")]
    assert found.content["score"] == found.content["caught"] / len(judged)
    if make == MAKES:
        assert (found.outcome, found.content["survived"]) == (GateOutcome.passed, 0)


async def test_an_output_that_the_verifier_only_adds_to_is_judged(shop: Workshop) -> None:
    found = await bite(shop, made_by_a_program("echo seen >> sorted.txt", "[ -s make.sh ]"), mutation_score_min=0.0)
    made = [mutant["fate"] for mutant in found.content["mutants"] if mutant["where"] == "/app/sorted.txt"]
    assert set(made) == {"survived"}
    assert found.content["made again"] == 0
    assert found.outcome is GateOutcome.failed
    assert "altered outputs is noticed" in found.detail


async def test_programs_beside_the_script_have_mutants_too(shop: Workshop) -> None:
    program = 'lines = open("/app/notes.txt").read().split()\nwords = 2\nprint(len(lines) // words)\n'
    call = {"solution__solve_sh": "#!/bin/bash\npython3 /solution/go.py > /app/total.txt\n", "solution__go_py": program}
    right = {"instruction.md": "Count."} | files('[ "$(cat /app/total.txt)" = 2 ]', **call)
    found = await bite(shop, right, mutants_max=16)
    assert found.outcome is GateOutcome.passed
    assert found.content["score"] == 1.0
    assert {mutant["where"] for mutant in found.content["mutants"]} >= {"go.py:2", "go.py:3", "solve.sh:2"}


async def test_the_smallest_solution_is_tried_empty(shop: Workshop) -> None:
    tiny: dict[str, str | bytes | None] = {
        "solution/solve.sh": "#!/bin/bash\n>/app/hello.txt\n",
        "tests/test.sh": verifier("[ -e hello.txt ]"),
    }
    found = await bite(shop, tiny)
    assert fates(found, "empty solution") == ["caught"]
    assert found.content["score"] == 1.0


async def test_a_mutant_without_end_is_caught_soon(shop: Workshop) -> None:
    solve = "#!/bin/bash\ncd /app\nn=5\nuntil [ $n = 5 ]; do n=$((n + 0)); done\necho hi > hello.txt\n"
    toml = TOML.replace("[agent]\ntimeout_sec = 20.0", "[agent]\ntimeout_sec = 0.5")
    found = await bite(shop, {"solution/solve.sh": solve, "task.toml": toml}, mutants_max=20)
    endless = [mutant for mutant in found.content["mutants"] if mutant["where"] == "solve.sh:3"]
    assert {mutant["fate"] for mutant in endless} == {"caught"}


async def test_equal_environments_have_equal_evidence(shop: Workshop) -> None:
    one, two = await bite(shop, files(SORTED)), await bite(shop, files(SORTED))
    assert (one.detail, one.content_bytes()) == (two.detail, two.content_bytes())


async def test_without_mutants_wanted_or_a_solution_that_earns_1_nothing_is_said(shop: Workshop) -> None:
    found = await bite(shop, files(SORTED), mutants_max=0)
    assert (found.outcome, found.detail) == (GateOutcome.skipped, "mutants_max is 0")
    case = replace(await solved(shop, files(SORTED)), oracle=Grade(reward=0.9))
    assert (await VerifierBites().check(case)).outcome is GateOutcome.skipped


async def test_trouble_of_the_machine_is_raised(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with open_shop(tmp_path_factory.mktemp("closed")) as shop:
        case = await solved(shop, files(SORTED))
        await shop.backend.close()
        with pytest.raises(SandboxError):
            await VerifierBites().check(case)
