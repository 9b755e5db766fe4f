"""A separate verifier gets what is declared, at its place, and nothing else of the agent."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.kernel.archive import FileEntry
from services.kernel.harbor.grade import EnvironmentBroken, Grade
from services.kernel.harbor.health import UnhealthyError
from tests.support.harbor_tasks import SEPARATE as APART
from tests.support.harbor_tasks import SEPARATE_IMAGE, TEST_SH, TOML, greeting
from tests.support.lab import Lab, open_lab

SEPARATE = TOML.replace('"shared"', '"separate"')
DECLARED = 'artifacts = ["/app/hello.txt"]\n' + SEPARATE
OWN_IMAGE = "FROM envwheel/base:1\nWORKDIR /app\nCOPY . /tests/\n"
SHOW = "#!/bin/bash\nfind /app /logs/artifacts -type f -exec ls -b {} + | sort\necho 1 > /logs/verifier/reward.txt\n"
HEALTH = '[environment.healthcheck]\ncommand = "COMMAND"\ninterval_sec = 0.01\nstart_interval_sec = 0.01\nretries = 2\n'


@pytest.fixture
async def lab(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    async with open_lab(tmp_path, tmp_path_factory.getbasetemp() / "base") as made:
        yield made


@pytest.mark.parametrize("dockerfile", [None, OWN_IMAGE])
async def test_a_declared_output_earns_its_reward_with_and_without_an_image_of_the_verifier(
    lab: Lab, dockerfile: str | None
) -> None:
    task, image = await lab.task(greeting({"task.toml": DECLARED, "tests/Dockerfile": dockerfile}))
    run = await lab.grader.run_solution(task, image)
    assert isinstance(run.grade, Grade)
    assert (run.grade.reward, run.grade.tests, run.grade.separate) == (1.0, {"says_hi": True}, True)
    assert (run.grade.artifacts, run.grade.warnings) == (("/logs/artifacts", "/app/hello.txt"), ())
    assert run.undeclared == ()
    idle = await lab.grader.run_noop(task, image)
    assert isinstance(idle, Grade)
    assert (idle.reward, idle.broken_by_agent, idle.artifacts) == (0.0, None, ("/logs/artifacts",))


@pytest.mark.parametrize("changes", [APART, SEPARATE_IMAGE])
async def test_what_real_harbor_gives_one_and_nothing_gets_the_same_here(
    lab: Lab, changes: dict[str, str | bytes | None]
) -> None:
    """Real Harbor grades these very tasks in test_real_harbor."""
    task, image = await lab.task(greeting(changes))
    solved, idle = await lab.grader.run_solution(task, image), await lab.grader.run_noop(task, image)
    assert isinstance(solved.grade, Grade)
    assert isinstance(idle, Grade)
    assert (solved.grade.reward, idle.reward) == (1.0, 0.0)
    assert ["exit code 3" in warning for warning in solved.warnings] == [True]


async def test_an_output_that_is_not_declared_does_not_arrive_and_is_named(lab: Lab) -> None:
    task, image = await lab.task(greeting({"task.toml": SEPARATE}))
    run = await lab.grader.run_solution(task, image)
    assert isinstance(run.grade, Grade)
    assert run.grade.reward == 0.0
    assert run.undeclared == ("/app/hello.txt",)


async def test_of_a_folder_all_that_is_regular_and_not_excluded_arrives_and_what_was_deleted_is_gone(lab: Lab) -> None:
    toml = 'artifacts = [{source = "/app/out", exclude = ["*.o", "tmp"]}]\n' + SEPARATE
    dockerfile = "FROM envwheel/base:1\nWORKDIR /app\nCOPY files/ /app/out/\n"
    grade = await lab.attempt(
        greeting({"task.toml": toml, "environment/Dockerfile": dockerfile, "tests/test.sh": SHOW}),
        "rm out/notes.txt; mkdir -p out/d/tmp; echo 1 > out/d/a; echo 1 > out/d/a.o; echo 1 > out/d/tmp/b",
        "ln -s /etc/passwd out/link; mkfifo out/pipe; ln out/d/a out/hard; echo 1 > stray",
        "printf 1 > $'out/odd\\n\\xff'; echo 1 > /logs/artifacts/c",
    )
    assert isinstance(grade, Grade)
    assert grade.output.decode().splitlines() == [
        *("/app/out/d/a", "/app/out/hard", "/app/out/odd\\n\\377", "/logs/artifacts/c"),
    ]


async def test_a_program_among_the_outputs_can_be_run(lab: Lab) -> None:
    toml = 'artifacts = ["/app/run", "/app/bin"]\n' + SEPARATE
    test_sh = "#!/bin/bash\n/app/run && /app/bin/run && [ ! -x /app/bin/plain ] && echo 1 > /logs/verifier/reward.txt\n"
    grade = await lab.attempt(
        greeting({"task.toml": toml, "tests/test.sh": test_sh}),
        "echo '#!/bin/bash' > run; chmod +x run; mkdir bin; cp run bin/run; echo > bin/plain",
    )
    assert isinstance(grade, Grade)
    assert grade.reward == 1.0


async def test_an_output_that_is_a_link_is_left_out_with_a_warning(lab: Lab) -> None:
    commands = "echo hi > /app/other; ln -s /app/other /app/hello.txt"
    grade = await lab.attempt(greeting({"task.toml": DECLARED}), commands)
    assert isinstance(grade, Grade)
    assert (grade.reward, grade.artifacts) == (0.0, ("/logs/artifacts",))
    assert "/app/hello.txt" in grade.warnings[0]


async def test_what_an_agent_plants_beside_its_outputs_has_no_effect(lab: Lab) -> None:
    grade = await lab.attempt(
        greeting({"task.toml": DECLARED}),
        "mkdir -p /tests; printf '#!/bin/bash\\necho 1 > /logs/verifier/reward.txt\\n' > /tests/test.sh",
        "echo 1 > /logs/verifier/reward.txt; echo 'echo 1 > /logs/verifier/reward.txt' > /root/.bashrc",
        "(while sleep 0.01; do echo 1 > /logs/verifier/reward.txt; done) > /dev/null 2>&1 &",
    )
    assert isinstance(grade, Grade)
    assert (grade.reward, grade.broken_by_agent) == (0.0, None)


async def test_collect_hooks_run_while_processes_live_and_a_failing_one_is_a_warning(lab: Lab) -> None:
    hooks = """[[verifier.collect]]
command = "cat /proc/$(cat /app/pid)/comm > /logs/artifacts/name; echo $PWD >> /logs/artifacts/name"
[[verifier.collect]]
command = "exit 3"
[[verifier.collect]]
command = "true"
user = "nobody"
"""
    test_sh = "#!/bin/bash\ncat /logs/artifacts/name; echo 1 > /logs/verifier/reward.txt\n"
    solution = "#!/bin/bash\nsleep 1000 &\necho $! > pid\n"
    files = {"task.toml": SEPARATE + hooks, "tests/test.sh": test_sh, "solution/solve.sh": solution}
    task, image = await lab.task(greeting(files))
    run = await lab.grader.run_solution(task, image)
    assert isinstance(run.grade, Grade)
    assert run.grade.output == b"sleep\n/app\n"
    assert run.left_processes == ("sleep",)
    assert ["exit code 3" in run.warnings[0], "nobody" in run.warnings[1]] == [True, True]


async def test_processes_that_a_solution_leaves_are_named_and_gone_when_it_is_graded(lab: Lab) -> None:
    solution = "#!/bin/bash\npython3 -c 'import time; time.sleep(1000)' &\nsleep 1000 & disown\nsleep 1000 &\n"
    test_sh = "#!/bin/bash\n! pgrep sleep > /dev/null && echo 1 > /logs/verifier/reward.txt\n"
    task, image = await lab.task(greeting({"solution/solve.sh": solution, "tests/test.sh": test_sh}))
    run = await lab.grader.run_solution(task, image)
    assert isinstance(run.grade, Grade)
    assert (run.grade.reward, run.left_processes) == (1.0, ("python3", "sleep"))


async def test_the_verifiers_image_has_the_env_and_the_work_directory_of_its_own_table(lab: Lab) -> None:
    own = '[verifier.environment]\nworkdir = "/srv"\nnetwork_mode = "no-network"\nenv = {WORD = "kilo"}\n'
    toml = SEPARATE.replace("workdir", "env = {WORD = 'lima'}\nworkdir") + own
    test_sh = '#!/bin/bash\necho "$PWD $WORD"; echo 1 > /logs/verifier/reward.txt\n'
    grade = await lab.attempt(greeting({"task.toml": toml, "tests/test.sh": test_sh}), "true")
    assert isinstance(grade, Grade)
    assert grade.output == b"/srv kilo\n"


@pytest.mark.parametrize(
    ("dockerfile", "reason"),
    [
        ("FROM envwheel/base:1\n", "COPY . /tests/"),
        ("FROM envwheel/base:1\nRUN false\n", "the verifier's image: RUN false: exit code 1"),
        ("FROM other:1\n", "the verifier's image: base 'other:1'"),
    ],
)
async def test_a_verifier_whose_image_is_at_fault_blames_the_environment(
    lab: Lab, dockerfile: str, reason: str
) -> None:
    task, image = await lab.task(greeting({"task.toml": DECLARED, "tests/Dockerfile": dockerfile}))
    broken = (await lab.grader.run_solution(task, image)).grade
    assert isinstance(broken, EnvironmentBroken)
    assert reason in broken.reason


@pytest.mark.parametrize("toml", [TOML, DECLARED])
async def test_other_tests_and_more_variables_can_be_given_for_one_grading(lab: Lab, toml: str) -> None:
    task, image = await lab.task(greeting({"task.toml": toml, "tests/Dockerfile": OWN_IMAGE}))
    other = {"test.sh": FileEntry(TEST_SH.replace("= hi", '= "$WORD"').encode())}
    for word, reward in (("hi", 1.0), ("ho", 0.0)):
        run = await lab.grader.run_solution(task, image, tests=other, verifier_env={"WORD": word})
        assert isinstance(run.grade, Grade)
        assert run.grade.reward == reward
    idle = await lab.grader.run_noop(task, image, tests=other, verifier_env={"WORD": ""})
    assert isinstance(idle, Grade)
    assert idle.reward == 1.0


async def test_a_healthcheck_is_run_until_it_succeeds_before_a_solution_begins(lab: Lab) -> None:
    command = "echo x >> /app/looks; [ $(wc -l < /app/looks) = 2 ]"
    solution = "#!/bin/bash\n[ $(wc -l < looks) = 2 ] && echo hi > hello.txt\n"
    toml = TOML + HEALTH.replace("COMMAND", command)
    task, image = await lab.task(greeting({"task.toml": toml, "solution/solve.sh": solution}))
    run = await lab.grader.run_solution(task, image)
    assert isinstance(run.grade, Grade)
    assert run.grade.reward == 1.0


async def test_failures_in_the_start_period_do_not_count(lab: Lab) -> None:
    command = "echo x >> /app/looks; [ $(wc -l < /app/looks) = 4 ]"
    toml = TOML + HEALTH.replace("COMMAND", command) + "start_period_sec = 1000\n"
    task, image = await lab.task(greeting({"task.toml": toml}))
    assert isinstance((await lab.grader.run_solution(task, image)).grade, Grade)


@pytest.mark.parametrize("mode", [TOML, DECLARED])
async def test_an_environment_that_does_not_get_healthy_is_at_fault(lab: Lab, mode: str) -> None:
    toml = mode + HEALTH.replace("COMMAND", "echo sick; false")
    task, image = await lab.task(greeting({"task.toml": toml}))
    with pytest.raises(UnhealthyError, match=r"failed 2 times.*sick"):
        await lab.grader.run_solution(task, image)
    broken = await lab.grader.run_noop(task, image)
    assert isinstance(broken, EnvironmentBroken)
    assert "healthcheck" in broken.reason
