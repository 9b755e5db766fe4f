"""The gate `no leak` on built images: what it finds and where, and that it leaves honest tasks alone."""

import base64
from collections.abc import AsyncIterator
from hashlib import sha256
from random import Random

import pytest
import pytest_asyncio

from schemas.outcomes import GateOutcome
from services.cli.heldout import far_set
from services.kernel.skills.catalogue import SKILLS
from services.kernel.workshop import Workshop
from services.validator.gates.gate import Case, Finding
from services.validator.gates.leak import NoLeak
from services.validator.gates.reading import WellFormed
from services.validator.gates.running import Builds
from tests.support.corpus_shapes import (
    DOCKERFILE,
    SHAPES,
    TALLY_STEPS,
    TOML,
    Text,
    but,
    convert,
    files_of,
    letter,
    tally,
)
from tests.support.shop import Files, case_of, composed, open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOLUTION = str(tally()["solution/solve.sh"])
EXPECTED = "name,sum\nada,2225\nines,1725\nomar,390\n"
ASKED, ASKED_TO_CONVERT = str(tally()["instruction.md"]), str(convert()["instruction.md"])
Changes = dict[str, Text | None]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    async with open_shop(tmp_path_factory.mktemp("no-leak")) as opened:
        yield opened


async def check(shop: Workshop, files: Files) -> Finding:
    return await NoLeak().check(await built(shop, files))


async def built(shop: Workshop, files: Files) -> Case:
    case = case_of(shop, files)
    for gate in (WellFormed(), Builds()):
        assert (found := await gate.check(case)).outcome is GateOutcome.passed, found
    return case


def image(lines: str, **files: Text) -> Changes:
    context: Changes = {f"environment/files/{name.replace('_', '.')}": text for name, text in files.items()}
    return {"environment/Dockerfile": DOCKERFILE + lines, **context}


FAULTS: dict[str, tuple[Changes, str]] = {
    "in a layer below": (
        image("RUN true\nRUN rm kept.txt\n", kept_txt=SOLUTION),
        "solution/solve.sh in /app/kept.txt (deleted by a later layer): all of its 3 lines",
    ),
    "in the environment": (
        {"task.toml": TOML + f'env = {{HINT = "{base64.b64encode(SOLUTION.encode()).decode()}"}}\n'},
        "solution/solve.sh in $HINT (base64)",
    ),
    "as a digest": (
        image("", sums_txt=f"{sha256(SOLUTION.encode()).hexdigest()}  solve.sh\n"),
        "solution/solve.sh in /app/sums.txt: its digest",
    ),
    "an answer of the same name": (
        {"tests/expected.csv": EXPECTED, "environment/files/expected.csv": EXPECTED},
        "tests/expected.csv in /app/expected.csv: word for word",
    ),
    "encoded in the instruction": (
        {"instruction.md": f"Do as `{base64.b64encode(SOLUTION.encode()).decode()}` says.\n"},
        "solution/solve.sh in instruction.md (base64)",
    ),
    "assertions in the instruction": (
        {"instruction.md": 'So that\n[ "$(cat /app/total.txt)" = 4340 ]\n[ "$(cat /app/top.txt)" = ada ]\n'},
        "tests/test.sh in instruction.md: 2 of its assertions",
    ),
    "in a pip cache below root": (
        image(
            "RUN mkdir -p /root/.cache/pip && gzip -c kept.txt > /root/.cache/pip/x && rm kept.txt\n", kept_txt=SOLUTION
        ),
        "solution/solve.sh in /root/.cache/pip/x (gzip)",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_leak_is_found_and_its_place_is_named(shop: Workshop, fault: str) -> None:
    changes, says = FAULTS[fault]
    found = await check(shop, files_of(but(tally(), changes)))
    assert found.outcome is GateOutcome.failed
    assert says in found.detail
    assert {leak["secret"] for leak in found.content["leaks"]} <= {
        "solution/solve.sh",
        "tests/test.sh",
        "tests/expected.csv",
    }


HONEST: dict[str, Changes] = {
    "an input that tests keep pristine": {
        "tests/orders.csv": str(tally()["environment/files/orders.csv"]),
    },
    "an input that tests keep under another name": {
        "tests/orders_original.csv": str(tally()["environment/files/orders.csv"]),
    },
    "a wanted result that the instruction points to": {
        "tests/expected.csv": EXPECTED,
        "environment/files/wanted/sums.csv": EXPECTED,
        "instruction.md": f"{ASKED}\nBeware: /app/wanted/sums.csv is of last year.\n",
    },
    "an archive to be unpacked": {
        "tests/expected.csv": EXPECTED,
        "environment/files/past.txt": base64.encodebytes(EXPECTED.encode()),
        "instruction.md": f"{ASKED}\nDecode past.txt first.\n",
    },
    "some of the commands": {
        "environment/files/Makefile": f"total.txt:\n\t{TALLY_STEPS[0]}\n",
    },
}


@pytest.mark.parametrize("what", HONEST)
async def test_what_honest_tasks_share_with_their_tests_is_no_leak(shop: Workshop, what: str) -> None:
    found = await check(shop, files_of(but(tally(), HONEST[what])))
    assert (found.outcome, found.detail) == (GateOutcome.passed, "")


async def test_tests_that_an_agent_is_told_to_run_are_kept_in_the_evidence(shop: Workshop) -> None:
    tests = str(convert()["tests/test_outputs.py"])
    given: Changes = {"environment/files/check/test_outputs.py": tests}
    told: Changes = {**given, "instruction.md": f"{ASKED_TO_CONVERT} Run check/test_outputs.py to see.\n"}
    assert (await check(shop, files_of(but(convert(), given)))).outcome is GateOutcome.failed
    found = await check(shop, files_of(but(convert(), told)))
    assert (found.outcome, found.content["leaks"]) == (GateOutcome.passed, [])
    assert [each["place"] for each in found.content["told"]] == ["/app/check/test_outputs.py"]


async def test_a_solution_is_a_leak_wherever_the_instruction_points(shop: Workshop) -> None:
    told = image("", how_txt=SOLUTION) | {"instruction.md": f"{ASKED}\nSee how.txt.\n"}
    assert (await check(shop, files_of(but(tally(), told)))).outcome is GateOutcome.failed


async def test_only_what_lies_above_the_base_is_read(shop: Workshop) -> None:
    found = await check(shop, files_of(letter()))
    assert found.outcome is GateOutcome.passed
    assert found.observed["files"] == 1
    assert found.observed["bytes"] == len("kilo\nlima\n")


async def test_a_file_that_is_not_wholly_looked_into_is_named(shop: Workshop) -> None:
    lines = "RUN head -c 80000000 /dev/zero | gzip > zeros.gz\n"
    found = await check(shop, files_of(but(tally(), image(lines))))
    assert (found.outcome, found.detail) == (GateOutcome.passed, "not wholly looked into: /app/zeros.gz")


async def test_names_that_no_message_could_carry_are_told_escaped(shop: Workshop) -> None:
    lines = "RUN cp kept.txt \"$(printf 'a\\377\\033b')\" && rm kept.txt\n"
    found = await check(shop, files_of(but(tally(), image(lines, kept_txt=SOLUTION))))
    assert [leak["place"] for leak in found.content["leaks"]] == ["/app/a\\udcff\\x1bb", "/app/kept.txt"]
    assert b"udcff" in found.content_bytes()


async def test_the_evidence_is_the_same_in_another_search(shop: Workshop) -> None:
    case = await built(shop, files_of(but(tally(), FAULTS["in a layer below"][0])))
    one, two = await NoLeak().check(case), await NoLeak().check(case)
    assert one.content_bytes() == two.content_bytes()


async def test_honest_tasks_pass_without_a_remark(shop: Workshop) -> None:
    rng = Random(11)
    tasks: list[Files] = [dict(task) for task in list(far_set().values())[::8]]
    tasks += [composed(*rng.sample(list(SKILLS), rng.randint(1, 4)), seed=seed) for seed in range(40)]
    tasks += [files_of(shape()) for shape in SHAPES]
    for files in tasks:
        found = await check(shop, files)
        assert (found.outcome, found.detail, found.content["told"]) == (GateOutcome.passed, "", []), files
