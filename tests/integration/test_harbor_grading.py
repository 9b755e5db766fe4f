"""Grading gives the agent what it earned: attacks earn nothing, and a broken environment blames nobody."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from services.kernel.archive import FileEntry
from services.kernel.harbor.grade import EnvironmentBroken, Grade, GradeFailed, Grader
from services.kernel.harbor.task import HarborTask
from services.kernel.sandbox.protocol import Ended, Image, Pins, SandboxError, SnapshotId
from tests.support.harbor_tasks import TEST_SH, TOML, greeting
from tests.support.lab import Lab, open_lab

HONEST = "echo hi > /app/hello.txt"
TWO_CHECKS = """#!/bin/bash
cd /app
[ "$(cat a 2>/dev/null)" = 1 ] && a=passed || a=failed
[ "$(cat b 2>/dev/null)" = 1 ] && b=passed || b=failed
printf '{"results":{"tests":[{"name":"a","status":"%s"},{"name":"b","status":"%s"}]}}' $a $b > /logs/verifier/ctrf.json
[ $a$b = passedpassed ] && reward=1 || { [ $a$b = failedfailed ] && reward=0 || reward=0.5; }
printf '{"reward": %s, "style": 3}' $reward > /logs/verifier/reward.json
"""


@pytest.fixture
async def lab(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    async with open_lab(tmp_path, tmp_path_factory.getbasetemp() / "base") as made:
        yield made


async def test_an_honest_agent_earns_its_reward_and_an_idle_one_nothing(lab: Lab) -> None:
    solved = await lab.attempt(greeting(), HONEST)
    assert isinstance(solved, Grade)
    assert (solved.reward, solved.tests, solved.output) == (1.0, {"says_hi": True}, b"says_hi: passed\n")
    idle = await lab.attempt(greeting(), "true")
    assert isinstance(idle, Grade)
    assert (idle.reward, idle.tests, idle.broken_by_agent) == (0.0, {"says_hi": False}, None)


async def test_partial_credit_names_and_metrics_come_through(lab: Lab) -> None:
    grade = await lab.attempt(greeting({"tests/test.sh": TWO_CHECKS}), "echo 1 > b")
    assert isinstance(grade, Grade)
    assert (grade.reward, grade.tests, grade.metrics) == (0.5, {"a": False, "b": True}, {"style": 3.0})


async def test_the_solution_earns_one_and_its_exit_code_is_kept(lab: Lab) -> None:
    task, image = await lab.task(
        greeting({"solution/solve.sh": "#!/bin/bash\necho hi > hello.txt\necho done; exit 3\n"})
    )
    run = await lab.grader.run_solution(task, image)
    assert (run.exit_code, run.ended, run.output) == (3, Ended.exited, b"done\n")
    assert isinstance(run.grade, Grade)
    assert run.grade.reward == 1.0
    other = await lab.grader.run_solution(task, image, solution={"solve.sh": FileEntry(b"touch /solution/x")})
    assert isinstance(other.grade, Grade)
    assert (other.grade.reward, other.exit_code) == (0.0, 1)


async def test_the_untouched_environment_is_graded_without_a_solution_in_sight(lab: Lab) -> None:
    look = TEST_SH + "ls -d /solution 2>/dev/null && echo 1 > /logs/verifier/reward.txt\n"
    task, image = await lab.task(greeting({"tests/test.sh": look}))
    grade = await lab.grader.run_noop(task, image)
    assert isinstance(grade, Grade)
    assert grade.reward == 0.0


async def test_a_snapshot_can_be_graded_again_with_the_same_result_under_other_pins(lab: Lab) -> None:
    task, image = await lab.task(greeting({"tests/test.sh": TEST_SH + "hostname; date +%Z\n"}))
    sandbox = await lab.start(task, image)
    await sandbox.exec(HONEST)
    snapshot = await sandbox.snapshot()
    first = await lab.grader.grade(task, image, snapshot)
    second = await lab.grader.grade(task, image, snapshot, pins=Pins(hostname="other", timezone="Asia/Tokyo"))
    assert isinstance(first, Grade)
    assert isinstance(second, Grade)
    assert first.reward == second.reward == 1.0
    assert first.output.endswith(b"envwheel\nUTC\n")
    assert b"other" in second.output


FORGED = [
    # A reward written before grading, in either file.
    "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json",
    # A background process that keeps writing it.
    "(while :; do echo '{\"reward\": 1}' > /logs/verifier/reward.json; sleep .05; done) > /dev/null 2>&1 & disown",
    "setsid nohup bash -c 'trap \"\" TERM; while :; do echo 1 > /logs/verifier/reward.txt; done' > /dev/null 2>&1 &",
    # Tests planted before grading.
    "mkdir -p /tests; echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh; chmod +x /tests/test.sh",
    "mkdir -p /tests; echo 1 > /tests/planted",
    # Links in place of the graders' folders.
    "rm -rf /tests; ln -s /app /tests; echo 'echo 1 > /logs/verifier/reward.txt' > test.sh; chmod +x test.sh",
    "mkdir /app/v; echo 1 > /app/v/reward.txt; rm -rf /logs; mkdir /logs; ln -s /app/v /logs/verifier",
    "mkdir -p /app/l/verifier; echo 1 > /app/l/verifier/reward.txt; rm -rf /logs; ln -s /app/l /logs",
    "rm -rf /logs /tests; touch /logs /tests",
    # Interpreters, start-up files and loaders that are not the image's.
    'printf \'#!/usr/bin/python3\\nopen("/logs/verifier/reward.txt", "w").write("1")\\n\' > /tmp/b; chmod +x /tmp/b; '
    "for t in /bin/bash /usr/bin/bash /usr/bin/cat /bin/sh; do cp /tmp/b $t; done",
    "mkdir -p /usr/local/bin; printf '#!/bin/sh\\necho hi' > /usr/local/bin/cat; chmod +x /usr/local/bin/cat",
    "rm /bin; mkdir /bin; printf '#!/usr/bin/python3\\n' > /bin/bash; chmod +x /bin/bash",
    "echo /app/evil.so > /etc/ld.so.preload",
    "echo 'echo 1 > /logs/verifier/reward.txt; exit' > /root/.bashrc; cp /root/.bashrc /root/.profile; "
    "cp /root/.bashrc /etc/bash.bashrc; echo BASH_ENV=/root/.bashrc > /etc/environment",
    "ln -s / /logs/artifacts/root; mkfifo /logs/verifier/p; mkdir -p /logs/verifier/reward.json",
]


@pytest.mark.parametrize("attack", FORGED)
async def test_an_attack_earns_nothing_and_spares_the_verifier(lab: Lab, attack: str) -> None:
    grade = await lab.attempt(greeting(), attack)
    assert isinstance(grade, Grade)
    assert (grade.reward, grade.broken_by_agent) == (0.0, None)


@pytest.mark.parametrize("attack", FORGED)
async def test_an_attack_does_not_take_an_earned_reward_either(lab: Lab, attack: str) -> None:
    grade = await lab.attempt(greeting(), HONEST, attack)
    assert isinstance(grade, Grade)
    assert grade.reward == 1.0


async def test_planted_test_files_are_gone_when_graded(lab: Lab) -> None:
    listing = "#!/bin/bash\nls -A /tests /logs/verifier\necho x > /tests/y\necho 0 > /logs/verifier/reward.txt\n"
    grade = await lab.attempt(
        greeting({"tests/test.sh": listing, "tests/data/x": "1"}),
        "mkdir -p /tests/data; touch /tests/conftest.py /tests/data/more /logs/verifier/old",
    )
    assert isinstance(grade, Grade)
    assert grade.output.splitlines()[:5] == [b"/logs/verifier:", b"", b"/tests:", b"data", b"test.sh"]
    assert b"Read-only file system" in grade.output


async def test_test_files_are_the_same_before_and_after_grading(lab: Lab, tmp_path: Path) -> None:
    wrecking = "#!/bin/bash\nrm -rf /tests/*; chmod 777 /tests; echo 0 > /logs/verifier/reward.txt\n"
    task, image = await lab.task(greeting({"tests/test.sh": wrecking}))
    await lab.grader.run_noop(task, image)
    (unpacked,) = (tmp_path / "grading/layers").iterdir()
    assert (unpacked / "test.sh").read_text() == wrecking
    assert list((tmp_path / "grading/making").iterdir()) == []


READS = """#!/bin/bash
bash /app/step.sh < /dev/null
if [ "$(cat /app/hello.txt 2>/dev/null)" = hi ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        ("echo 'kill -9 $PPID' > step.sh", "no reward file"),
        ("echo 'while :; do :; done' > step.sh", "cpu_limit"),
        ("rm -f step.sh; mkfifo step.sh", "wall_limit"),
        ("echo 'mkdir /logs/verifier/reward.json' > step.sh", "plain file"),
    ],
)
async def test_an_agent_that_breaks_its_verifier_earns_nothing_and_is_named(lab: Lab, attack: str, reason: str) -> None:
    toml = TOML.replace("timeout_sec = 10.0", "timeout_sec = 0.15")
    files = greeting({"task.toml": toml, "tests/test.sh": READS, "environment/files/step.sh": "true\n"})
    grade = await lab.attempt(files, HONEST, attack)
    assert isinstance(grade, Grade)
    assert grade.reward == 0.0
    assert grade.broken_by_agent is not None
    assert reason in grade.broken_by_agent


async def test_the_tests_of_a_broken_verifier_all_count_as_failed(lab: Lab) -> None:
    fragile = TEST_SH.replace("pass() {", "[ -e /app/wreck ] && exit 1\npass() {")
    grade = await lab.attempt(greeting({"tests/test.sh": fragile}), HONEST, "touch wreck")
    assert isinstance(grade, Grade)
    assert (grade.reward, grade.tests) == (0.0, {"says_hi": False})
    assert grade.broken_by_agent == "no reward file: the verifier wrote neither reward.json nor reward.txt"


@pytest.mark.parametrize(
    ("test_sh", "reason"),
    [
        ("#!/bin/bash\nexit 0\n", "no reward file"),
        ("#!/bin/bash\necho nan > /logs/verifier/reward.txt\n", "not a plain decimal"),
        ("#!/bin/bash\nln -s /etc/hostname /logs/verifier/reward.txt\n", "link"),
        ("#!/bin/bash\nmkfifo /logs/verifier/reward.txt\n", "not a plain file"),
        ("#!/bin/bash\necho 2 > /logs/verifier/reward.txt\n", "not in"),
        ("#!/bin/bash\necho 1 > /logs/verifier/reward.txt\nwhile :; do :; done\n", "cpu_limit"),
    ],
)
async def test_an_environment_that_cannot_grade_is_broken_whatever_the_agent_did(
    lab: Lab, test_sh: str, reason: str
) -> None:
    files = greeting({"task.toml": TOML.replace("10.0", "0.2"), "tests/test.sh": test_sh})
    broken = await lab.attempt(files, HONEST)
    assert isinstance(broken, EnvironmentBroken)
    assert reason in broken.reason
    task, image = await lab.task(files)
    assert isinstance(await lab.grader.run_noop(task, image), EnvironmentBroken)


@pytest.mark.parametrize(
    ("test_sh", "reward"),
    [
        ("echo 1 > /logs/verifier/reward.txt", 1.0),
        ("#!/bin/bash\necho 1 > /logs/verifier/reward.txt\nexit 7\n", 1.0),
        ("#!/bin/bash\nsleep 40 &\necho 0.5 > /logs/verifier/reward.txt\n", 0.5),
        ("#!/bin/bash\nyes $'\\xff\\xfe' | head -c 20000000\necho 1 > /logs/verifier/reward.txt\n", 1.0),
        ("#!/bin/bash\necho 0 > /logs/verifier/reward.txt\necho '{\"reward\": 1}' > /logs/verifier/reward.json\n", 1.0),
        ("#!/bin/bash\nmkfifo /logs/verifier/p\ntrap 'echo 1 > /logs/verifier/reward.txt' EXIT\nfalse\n", 1.0),
        ("#!/bin/bash\n[ $PWD = /app ] && echo 1 > /logs/verifier/reward.txt\n", 1.0),
        ("#!/bin/bash\ncmp /tests/raw <(printf '\\0\\377\\r\\n') && echo 1 > /logs/verifier/reward.txt\n", 1.0),
        ('#!/bin/bash\n[ "$MODE-$B" = strict-x ] && echo 1 > /logs/verifier/reward.txt\n', 1.0),
    ],
)
async def test_verifiers_run_as_harbor_runs_them(lab: Lab, test_sh: str, reward: float) -> None:
    toml = TOML.replace("[environment]", 'env = {MODE = "strict", B = "${NONE:-x}"}\n[environment]')
    task, image = await lab.task(greeting({"task.toml": toml, "tests/test.sh": test_sh, "tests/raw": b"\0\xff\r\n"}))
    grade = await lab.grader.run_noop(task, image)
    assert isinstance(grade, Grade)
    assert grade.reward == reward
    assert len(grade.output) <= task.verifier_limits.output_bytes_max


class Unlucky(Grader):
    """Grades for real, but for the first time."""

    attempts = 0

    async def attempt(
        self,
        task: HarborTask,
        image: Image,
        snapshot: SnapshotId | None,
        *,
        pins: Pins | None = None,
        tests: Mapping[str, FileEntry] | None = None,
        verifier_env: Mapping[str, str] | None = None,
    ) -> Grade | GradeFailed:
        self.attempts += 1
        graded = await super().attempt(task, image, snapshot, pins=pins, tests=tests, verifier_env=verifier_env)
        return graded if self.attempts > 1 else GradeFailed(reason="a hiccup")


async def test_a_grading_that_gave_no_reward_is_done_once_more_before_anybody_is_blamed(
    lab: Lab, tmp_path: Path
) -> None:
    lab.grader = unlucky = Unlucky(lab.backend, lab.builder, tmp_path / "grading")
    grade = await lab.attempt(greeting(), HONEST)
    assert isinstance(grade, Grade)
    assert (grade.reward, grade.broken_by_agent, unlucky.attempts) == (1.0, None, 2)


async def test_a_sandbox_that_cannot_be_had_is_infrastructure_and_no_grade(lab: Lab) -> None:
    task, image = await lab.task(greeting())
    await lab.backend.close()
    with pytest.raises(SandboxError):
        await lab.grader.grade(task, image, None)


async def test_a_user_of_the_verifier_is_obeyed(lab: Lab) -> None:
    toml = TOML.replace("[environment]", 'user = "agent"\n[environment]')
    test_sh = "#!/bin/bash\nid -un\necho 0 > /logs/verifier/reward.txt\n"
    task, image = await lab.task(greeting({"task.toml": toml, "tests/test.sh": test_sh}))
    grade = await lab.grader.run_noop(task, image)
    assert isinstance(grade, Grade)
    assert grade.output == b"agent\n"


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _left(root: Path) -> list[Path]:
    return [path for pattern in ("sandboxes/owner-*/[0-9]*", "grading/making/*") for path in root.glob(pattern)]


async def test_grading_keeps_no_file_open_and_no_folder_behind(lab: Lab, tmp_path: Path) -> None:
    await lab.attempt(greeting(), HONEST)
    before = _open_files()
    for _ in range(3):
        await lab.attempt(greeting(), HONEST)
    assert _open_files() <= before
    assert _left(tmp_path) == []
