"""Public faults of tasks, by their row in the table of `test_public_faults`: 8 to 17, 19, 23, 34."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from schemas.outcomes import Calibration, GateOutcome, Verdict
from schemas.rules import calibration_outcome
from schemas.science import CalibrationRules
from services.kernel.archive import write_tree
from services.kernel.harbor.task import read_task, read_task_dir
from services.kernel.workshop import Workshop
from services.validator.gates.gate import Cost
from services.validator.gates.run import GATES, run_gates
from tests.support.corpus_shapes import (
    DOCKERFILE,
    SOLVE,
    TOML,
    Texts,
    bash_verifier,
    but,
    files_of,
    letter,
    swap,
    tally,
)
from tests.support.shop import case_of, open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")

LETTER = '[ "$(cat /app/letter.txt)" = "signed, sealed" ]'
WRITE = "echo 'signed, sealed' > letter.txt\n"
TEST = str(letter()["tests/test.sh"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    async with open_shop(tmp_path_factory.mktemp("tasks")) as opened:
        yield opened


async def refused(shop: Workshop, texts: Texts) -> dict[str, str]:
    """The gates that fail, with what they say; the costly repeats are left out."""
    gates = [gate for gate in GATES if gate.cost < Cost.repeating]
    report = await run_gates(case_of(shop, files_of(texts)), gates)
    found = {gate.name: finding.detail for gate, finding in report.findings if finding.outcome is GateOutcome.failed}
    assert (report.verdict is Verdict.invalid) == bool(found)
    return found


@pytest.mark.parametrize(
    "when_it_fails", ["exit 1", "echo 0 > /logs/verifier/reward.txt; exit 0"], ids=["mute", "zero"]
)
async def test_row_08_a_verifier_that_installs_its_tools_is_refused_and_trains_nobody(
    shop: Workshop, when_it_fails: str
) -> None:
    install = f"curl -LsSf http://192.0.2.1/install.sh > /tmp/install.sh || {{ {when_it_fails}; }}\n"
    task = but(letter(), {"tests/test.sh": swap(TEST, "set -u\n", f"set -u\n{install}")})
    assert "oracle passes" in await refused(shop, task)


async def test_row_09_a_package_that_the_index_no_longer_has_fails_the_build(shop: Workshop) -> None:
    pinned = DOCKERFILE + "RUN apt-get install -y --no-install-recommends foo=1.2-3\n"
    found = await refused(shop, but(letter(), {"environment/Dockerfile": pinned}))
    assert found.keys() == {"builds"}
    assert "exit code 100" in found["builds"]


@pytest.mark.parametrize(
    ("outside", "says"),
    [
        ("curl -fsS http://127.0.0.1:9/x || exit 1", "no reward file"),
        # As a server that takes a connection and never answers.
        ("mkfifo /tmp/answer; read -r line < /tmp/answer", "wall_limit"),
    ],
    ids=["refused", "hanging"],
)
async def test_row_10_a_verifier_that_needs_the_outside_world_is_refused(
    shop: Workshop, outside: str, says: str
) -> None:
    brief = swap(TOML, "timeout_sec = 10.0", "timeout_sec = 0.05")
    test = swap(TEST, "trap finish", f"{outside}\ntrap finish")
    task = but(letter(), {"tests/test.sh": test} | ({"task.toml": brief} if says == "wall_limit" else {}))
    assert says in (await refused(shop, task))["oracle passes"]


async def test_row_11_what_no_attempt_can_meet_is_not_admitted() -> None:
    """No gate reads minds: tests that ask for what the instruction does not say show in that nobody passes them."""
    assert calibration_outcome([0.0] * 4, 4, CalibrationRules()) is Calibration.too_hard
    assert calibration_outcome([0.0, 1.0, 0.0, 1.0], 4, CalibrationRules()) is Calibration.admitted


@pytest.mark.parametrize("place", ["files/.patch/solution.diff", "files/.git/solution", "files/.cache/pip/a"])
async def test_row_12_a_solution_left_in_the_image_is_found(shop: Workshop, place: str) -> None:
    assert (await refused(shop, but(tally(), {f"environment/{place}": tally()["solution/solve.sh"]}))).keys() == {
        "no leak"
    }


async def test_row_13_a_solution_that_grows_with_the_hosts_cores_meets_the_tasks_own_limits(shop: Workshop) -> None:
    worker = "python3 -c 'x = bytearray(10 ** 8); x[::4096] = bytes(len(x[::4096])); import time; time.sleep(60)' &\n"
    found = await refused(shop, but(letter(), {"solution/solve.sh": SOLVE + worker * 8 + "wait -n\nwait\n" + WRITE}))
    assert found.keys() == {"oracle passes"}


async def test_row_16_an_untouched_run_and_the_solution_never_share_a_sandbox(shop: Workshop) -> None:
    once = 'if [ -e /app/out ]; then echo "ran before"; exit 0; fi; touch /app/out\n'
    assert await refused(shop, but(letter(), {"tests/test.sh": swap(TEST, "set -u\n", f"set -u\n{once}")})) == {}


SERVER = "python3 -m http.server 8123 --bind 127.0.0.1 > /dev/null 2>&1 &\n"
REACHED = "for i in $(seq 300); do (exec 3<>/dev/tcp/127.0.0.1/8123) 2> /dev/null && break; sleep 0.1; done; "


async def test_row_17_a_service_lives_from_one_command_to_the_next_and_ends_before_grading(shop: Workshop) -> None:
    task = read_task(files_of(letter())).task
    assert task is not None
    sandbox = await shop.backend.start(await shop.builder.build(task), limits=task.agent_limits)
    try:
        await sandbox.exec(SERVER)
        assert (await sandbox.exec(REACHED + "exec 3<>/dev/tcp/127.0.0.1/8123")).exit_code == 0
    finally:
        await sandbox.close()
    served = bash_verifier(letter=LETTER, served="exec 3<>/dev/tcp/127.0.0.1/8123")
    found = await refused(shop, but(letter(), {"solution/solve.sh": SOLVE + WRITE + SERVER, "tests/test.sh": served}))
    assert found.keys() == {"oracle passes"}
    assert "served" in found["oracle passes"]


async def test_row_19_a_task_of_several_containers_is_refused_with_the_reason(shop: Workshop) -> None:
    compose = "services:\n  main: {build: .}\n  db: {image: postgres}\n"
    found = await refused(shop, but(letter(), {"environment/docker-compose.yaml": compose}))
    assert found.keys() == {"well-formed"}
    assert "docker-compose.yaml" in found["well-formed"]


@pytest.mark.parametrize("link", ["instruction.md", "environment/files/notes.txt", "tests/data", "solution/more"])
async def test_row_23_a_link_in_a_task_is_not_followed(tmp_path: Path, link: str) -> None:
    write_tree(files_of(letter()), tmp_path / "task")
    (tmp_path / "task" / link).unlink(missing_ok=True)
    (tmp_path / "task" / link).symlink_to("/etc/hostname")
    reading = read_task_dir(tmp_path / "task")
    assert reading.task is None
    assert [problem.code for problem in reading.problems] == ["tree"]
    assert link in reading.problems[0].message


@pytest.mark.parametrize("line", ['ENTRYPOINT ["/bin/false"]\n', "HEALTHCHECK CMD false\n", "CMD false\n"])
async def test_row_34_a_sandbox_stays_up_whatever_the_image_would_start(shop: Workshop, line: str) -> None:
    assert await refused(shop, but(letter(), {"environment/Dockerfile": DOCKERFILE + line})) == {}


@pytest.mark.parametrize(
    "line", ["RUN rm -rf /bin /usr/bin\n", "WORKDIR /app/notes.txt\n", "USER nobody-here\nRUN :\n"]
)
async def test_row_34_an_image_in_which_nothing_can_start_is_told_at_the_build(shop: Workshop, line: str) -> None:
    found = await refused(shop, but(letter(), {"environment/Dockerfile": DOCKERFILE + line}))
    assert found.keys() == {"builds"}
