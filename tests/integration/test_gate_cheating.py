"""Attacks earn nothing on sound tasks, and each weakness of a task is found and named."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from schemas.outcomes import GateOutcome
from services.kernel.archive import FileEntry
from services.kernel.harbor.grade import Grade, GradeFailed, Grader
from services.kernel.harbor.reward import parse_reward_json
from services.kernel.harbor.task import HarborTask
from services.kernel.sandbox.protocol import Image, Limits, SandboxError, SnapshotId
from services.kernel.workshop import Workshop
from services.validator.gates.attacks import OWN_TEST, Attack, script_of, watched, witnesses
from services.validator.gates.attacks_planted import PLANTED
from services.validator.gates.attacks_remnants import REMNANTS, SPOILERS
from services.validator.gates.cheating import ResistsCheating
from services.validator.gates.gate import Case, Finding
from services.validator.gates.reading import WellFormed
from services.validator.gates.run import run_gates
from services.validator.gates.running import Builds, NoopFails
from tests.support.harbor_tasks import TEST_SH, TOML, greeting
from tests.support.pytest_verifier import pytest_task
from tests.support.sandboxes import BACKENDS
from tests.support.shop import Files, case_of, composed, open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")

Changes = dict[str, str | bytes | None]
STATIC = {attack.name: attack for attack in (*PLANTED, *REMNANTS, *SPOILERS)}
GUESSES = ("empty files", "the answer 0", "the answer 1", "the instruction as the answer")
PROGRAM = "a program that forges the reward"
SAYING = "programs that say it is right"
PYTEST = "settings and plugins of pytest"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    async with open_shop(tmp_path_factory.mktemp("cheating")) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=BACKENDS)
async def any_shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    async with open_shop(tmp_path_factory.mktemp("cheating"), request.param) as opened:
        yield opened


async def prepared(shop: Workshop, files: Files) -> Case:
    """The case, once the gates that this one needs have passed."""
    case = case_of(shop, files)
    report = await run_gates(case, (WellFormed(), Builds(), NoopFails()))
    assert {found.outcome for _, found in report.findings} == {GateOutcome.passed}, report
    return case


async def attacked(shop: Workshop, files: Files) -> Finding:
    return await ResistsCheating().check(await prepared(shop, files))


def first(line: str) -> Changes:
    """A verifier that does this before its checks."""
    return {"tests/test.sh": TEST_SH.replace("#!/bin/bash\n", f"#!/bin/bash\n{line}\n")}


async def test_no_attack_earns_anything_on_a_sound_task_and_each_is_listed(any_shop: Workshop) -> None:
    found = await attacked(any_shop, greeting())
    assert found.outcome is GateOutcome.passed, found
    assert found.content["attacks"].keys() >= {*STATIC, PROGRAM, *GUESSES}
    assert set(found.content["attacks"].values()) == {0.0}
    assert (found.content["succeeded"], found.content["weak"], found.content["exposed"]) == ([], {}, [])
    assert found.observed["broken"].keys() <= {"a disk that is full"}


async def test_no_attack_earns_anything_where_outputs_are_graded_apart(shop: Workshop) -> None:
    apart = 'artifacts = ["/app/hello.txt"]\n' + TOML.replace('"shared"', '"separate"')
    found = await attacked(shop, greeting({"task.toml": apart}))
    assert found.outcome is GateOutcome.passed, found
    assert found.content["attacks"].keys() >= {*STATIC, PROGRAM, *GUESSES}
    assert set(found.content["attacks"].values()) == {0.0}


async def test_partial_credit_for_files_that_are_there_is_said_each_time_alike_and_is_no_cheat(shop: Workshop) -> None:
    files = composed("sort_numbers", "copy_file")
    found, again = await attacked(shop, files), await attacked(shop, files)
    assert (found.detail, found.content_bytes()) == (again.detail, again.content_bytes())
    assert found.outcome is GateOutcome.passed
    assert found.content["weak"].items() >= {"empty files": 0.25, **dict.fromkeys([PROGRAM, *GUESSES[1:]], 0.5)}.items()
    assert "0.5 of the reward needs no work" in found.detail


FROM = "FROM envwheel/base:1\nWORKDIR /app\n"
HOLES = greeting(
    {
        **first(
            """. ~/.profile 2> /dev/null
env -u PYTHONNOUSERSITE python3 -c 1
python3 -c 'import json' && python3 -I test_more.py && /opt/check && .more/check
(PATH=/app/bin:$PATH; head -c 1 /dev/null)"""
        ),
        "environment/files/test_more.py": "assert True\n",
        "environment/files/.more/check": "#!/bin/bash\ntrue\n",
        "environment/Dockerfile": FROM + "COPY files/ /app/\nRUN chmod 755 .more/check && cp .more/check /opt/check\n",
    }
)
FOUND = [
    "start-up files of shells",
    "start-up modules of python",
    "modules in the working directory",
    "edited tests",
    "tools outside the system folders",
    "replaced programs",
]


async def test_whatever_a_verifier_runs_for_an_agent_is_named_however_much_it_is(any_shop: Workshop) -> None:
    found = await attacked(any_shop, HOLES)
    assert found.outcome is GateOutcome.failed
    assert sorted(found.content["succeeded"]) == sorted(FOUND)
    assert "run python -P (or -I)" in found.detail
    assert found.detail.endswith("; 1 more")


VERIFY = """try:
    said = int(open("/srv/key.txt").read(), 16)
except OSError:
    said = None
print("valid" if said == 48879 else "wrong")
"""


def believing(check: str) -> str:
    """A verifier that looks at the form of the answer, and believes a program for the rest."""
    condition = f"grep -qE '^([0-9a-f]{{32}})+$' /srv/key.txt 2>/dev/null && {check} | grep -qx valid"
    return TEST_SH.replace('[ "$(cat /app/hello.txt 2>/dev/null)" = hi ]', condition)


WEAK: dict[str, tuple[Changes, list[str]]] = {
    "a reward from elsewhere": (
        {"tests/test.sh": TEST_SH + "cp /logs/artifacts/reward.txt /logs/verifier/ 2> /dev/null\n"},
        ["printed markers"],
    ),
    "an answer in the image": (
        {
            "environment/files/hello.txt": "hi\n",
            "environment/Dockerfile": FROM + "COPY files/hello.txt /srv/cache/hello.txt\n",
        },
        ["an answer that lies about"],
    ),
    "an answer under another name, where the instruction says not to look": (
        {
            "instruction.md": "Write the word hi into /app/hello.txt. Do not read /app/.expected_word.\n",
            "environment/files/.expected_word": "hi\n",
        },
        ["an answer that lies about"],
    ),
    "an expectation that the agent can write": (
        {
            "environment/files/expected.sum": "0f1e\n",
            "tests/test.sh": TEST_SH.replace("= hi ]", '= "$(sed s/1e/22/ /app/expected.sum)" ]'),
        },
        ["an expected answer that is rewritten"],
    ),
    "the answer among others will do": (
        {
            "tests/test.sh": TEST_SH.replace(
                '[ "$(cat /app/hello.txt 2>/dev/null)" = hi ]', "grep -qx 4711 /app/hello.txt"
            )
        },
        ["every answer at once"],
    ),
    "a check that lies with the agent, and a hexadecimal answer": (
        {
            "instruction.md": "Write a key in hexadecimal to /srv/key.txt; /srv/tools/verify.py will check it.\n",
            "environment/files/verify.py": VERIFY,
            "environment/Dockerfile": FROM + "COPY files/verify.py /srv/tools/verify.py\n",
            "solution/solve.sh": "#!/bin/bash\nprintf %032x 48879 > /srv/key.txt\n",
            "tests/test.sh": believing("python3 /srv/tools/verify.py"),
        },
        [SAYING],
    ),
    "a check in the working directory": (
        {
            "instruction.md": "Write a key in hexadecimal to /srv/key.txt.\n",
            "environment/files/check": f"#!/usr/bin/python3\n{VERIFY}",
            "environment/Dockerfile": FROM + "COPY files/check /app/check\nRUN chmod 755 check\n",
            "solution/solve.sh": "#!/bin/bash\nprintf %032x 48879 > /srv/key.txt\n",
            "tests/test.sh": believing("/app/check"),
        },
        [SAYING],
    ),
    "anything will do": ({"tests/test.sh": TEST_SH.replace("= hi ]", '!= "" ]')}, [PROGRAM, *GUESSES[1:]]),
    "nothing will do": (
        {"tests/test.sh": TEST_SH.replace('[ "$(cat /app/hello.txt 2>/dev/null)" = hi ]', "[ -f /app/hello.txt ]")},
        [PROGRAM, *GUESSES],
    ),
}


@pytest.mark.parametrize("weakness", WEAK)
async def test_tests_that_pay_for_no_work_are_found_with_the_attack_that_shows_it(
    shop: Workshop, weakness: str
) -> None:
    changes, names = WEAK[weakness]
    found = await attacked(shop, greeting(changes))
    assert found.outcome is GateOutcome.failed
    assert set(found.content["succeeded"]) >= set(names)
    assert not STATIC.keys() & set(found.content["succeeded"]) - set(names)
    assert f"{names[0]}: earns 1, an untouched environment 0" in found.detail


EVALUATED = {
    "a number that the shell runs": ("/app/n.txt", "[[ $(cat /app/n.txt) -eq 7 ]]"),
    "a value that python runs": ("/app/n.txt", "python3 -I -c 'eval(open(\"/app/n.txt\").read())'"),
    "a pickle that runs a program": ("/app/n.pkl", "python3 -I -m pickle /app/n.pkl"),
}


@pytest.mark.parametrize("name", EVALUATED)
async def test_data_that_the_verifier_evaluates_is_found_and_what_only_compares_it_is_not(
    shop: Workshop, name: str
) -> None:
    path, line = EVALUATED[name]
    asked = {"instruction.md": f"Write the word hi into /app/hello.txt and the number 7 into {path}.\n"}
    found = await attacked(shop, greeting(asked | first(f"{line} 2> /dev/null")))
    assert name in found.content["succeeded"]
    assert f"the verifier runs what an agent left: {name}" in found.detail
    sound = await attacked(shop, greeting(asked | first(f'[ "$(cat {path})" -eq 7 ] 2> /dev/null')))
    assert (sound.outcome, sound.content["succeeded"]) == (GateOutcome.passed, []), sound


async def test_what_breaks_the_verifier_hides_no_other_attack(shop: Workshop) -> None:
    found = await attacked(shop, greeting(first("[ ! -e /app/pytest.py ] || exit 1\n. ~/.profile 2> /dev/null")))
    assert found.content["succeeded"] == ["start-up files of shells"]
    assert "no reward file" in found.observed["broken"]["modules in the working directory"]


@pytest.mark.parametrize(
    ("run", "reads"),
    [
        ("cd /app && python3 -P -m pytest -p no:cacheprovider /tests/test_outputs.py", False),
        ("cp /tests/test_outputs.py /app && cd /app && python3 -P -m pytest test_outputs.py", True),
    ],
    ids=["from afar", "beside its tests"],
)
async def test_settings_of_pytest_count_beside_its_tests_and_not_in_the_root_folder(
    shop: Workshop, run: str, *, reads: bool
) -> None:
    case = await prepared(shop, greeting(pytest_task(run)))
    task, image = case.known_task(), case.known_image()
    solution = {"solve.sh": FileEntry(script_of([STATIC[PYTEST]], ()).encode(), executable=True)}
    tests = {name.removeprefix("tests/"): entry for name, entry in watched(case.files).items() if "tests/" in name}
    graded = (await shop.grader.run_solution(task, image, solution=solution, tests=tests)).grade
    assert (PYTEST in witnesses(graded.output)) is reads
    honest = (await shop.grader.run_solution(task, image, tests=tests)).grade
    assert isinstance(honest, Grade)
    assert honest.reward == 1.0


RUNS = TEST_SH.replace("cat /app/hello.txt", "bash /app/hello.sh")
OWN_MODULES: Changes = {
    "environment/files/tool.py": "import json\nprint(json.loads('\"no\"'))\n",
    "tests/test.sh": TEST_SH.replace(
        "cat /app/hello.txt",
        "cd /app; python3 tool.py; python3 -m tool; python3 -Wdefault -c 'import tool'; cd /; python3 /app/tool.py",
    ),
}


@pytest.mark.parametrize(
    "changes",
    [
        {"instruction.md": "Write /app/hello.sh, which prints hi.\n", "tests/test.sh": RUNS},
        {
            "environment/Dockerfile": FROM + "RUN git init -q repo && touch repo/f && git -C repo add f\n",
            **first("git -C /app/repo status > /dev/null"),
        },
        OWN_MODULES,
    ],
    ids=["a program", "git", "a program that is there, with modules beside it"],
)
async def test_a_program_that_the_verifier_must_run_is_said_and_forges_no_reward_all_the_same(
    shop: Workshop, changes: Changes
) -> None:
    found = await attacked(shop, greeting(changes))
    assert found.outcome is GateOutcome.passed, found
    assert found.content["exposed"] == [PROGRAM]
    assert found.content["attacks"][PROGRAM] == 0.0
    assert "reward.json: no test speaks of it" in found.observed["broken"][PROGRAM]
    assert "it could forge it" in found.detail


async def test_a_user_that_the_image_does_not_know_is_the_tasks_fault(shop: Workshop) -> None:
    case = await prepared(shop, greeting())
    stranger = case_of(shop, greeting({"task.toml": TOML.replace("[verifier]", 'user = "stranger"\n[verifier]', 1)}))
    await WellFormed().check(stranger)
    stranger.image, stranger.noop = case.image, case.noop
    found = await ResistsCheating().check(stranger)
    assert found.outcome is GateOutcome.failed
    assert "stranger" in found.detail


class Failing(Grader):
    """Cannot grade anything any more."""

    async def attempt(
        self, task: HarborTask, image: Image, snapshot: SnapshotId | None, **more: object
    ) -> Grade | GradeFailed:
        return GradeFailed(reason="a hiccup")


async def test_an_environment_that_can_no_more_be_graded_is_infrastructure(shop: Workshop, tmp_path: Path) -> None:
    case = await prepared(shop, greeting())
    case.workshop = replace(shop, grader=Failing(shop.backend, shop.builder, tmp_path))
    with pytest.raises(SandboxError, match="now is not: a hiccup"):
        await ResistsCheating().check(case)


@pytest.mark.parametrize(
    "name", [PLANTED[0].name, "processes that write the reward", "a link in place of the log folder"]
)
async def test_attacks_win_where_the_agents_processes_and_files_are_kept(any_shop: Workshop, name: str) -> None:
    """Graded as a careless harness does it, in the agent's own sandbox: so they are attacks indeed."""
    case, limits = await prepared(any_shop, greeting()), Limits(cpu_s=20.0, wall_s=120.0)
    sandbox = await any_shop.backend.start(case.known_image(), limits=limits)
    try:
        await sandbox.exec(("/bin/sh", "-c", script_of([STATIC[name]], ())), limits=limits)
        await sandbox.exec(TEST_SH.partition("\n")[2], limits=limits)
        seen = await sandbox.exec("until grep reward /logs/verifier/reward.json; do sleep 0.05; done", limits=limits)
    finally:
        await sandbox.close()
    assert parse_reward_json(seen.output.splitlines()[-1])[0] == 1.0


async def test_attacks_have_names_of_their_own_and_say_where_they_were_seen() -> None:
    attacks: list[Attack] = [*PLANTED, *REMNANTS, *SPOILERS]
    assert len(STATIC) == len(attacks)
    assert all(attack.source and attack.remedy for attack in attacks)


async def test_witnesses_are_read_from_lines_of_their_own() -> None:
    output = b"x\nenvwheel-attack ran: edited tests\nsaid envwheel-attack ran: y\nenvwheel-attack ran: edited tests\n"
    assert witnesses(output) == ["edited tests"]
    assert witnesses(b"") == []


async def test_the_tasks_own_verifier_is_run_by_a_shell_of_its_kind() -> None:
    for own, shell in (("#!/bin/bash -e", "bash"), ("#!/bin/sh", "sh"), ("echo", "bash"), ("#!/usr/bin/python3", "sh")):
        files = watched({"tests/test.sh": FileEntry(f"{own}\n".encode(), executable=False)})
        assert files["tests/test.sh"].content.startswith(f"#!/bin/{shell}\n".encode())
        assert files[f"tests/{OWN_TEST}"] == FileEntry(f"{own}\n".encode(), executable=True)
