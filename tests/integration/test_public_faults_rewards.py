"""Public faults of reward and verifier, by their row in the table of `test_public_faults`: 1 to 7, 12, 18, 20 to 22."""

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from services.kernel.harbor.grade import Grade
from services.kernel.harbor.reward import RewardError, read_verdict
from services.kernel.sandbox.protocol import SandboxRefusedError
from tests.support.corpus_shapes import apart, bash_verifier, but, convert, files_of, letter, mend, swap
from tests.support.lab import Lab, open_lab

pytestmark = pytest.mark.asyncio(loop_scope="module")

HONEST = "echo 'signed, sealed' > /app/letter.txt"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    folder = tmp_path_factory.mktemp("rewards")
    async with open_lab(folder, folder / "base") as opened:
        yield opened


async def reward(lab: Lab, texts: dict[str, str | bytes], *commands: str) -> float:
    """What an agent earns that runs `commands`, with a verifier that stays whole."""
    grade = await lab.attempt(files_of(texts), *commands)
    assert isinstance(grade, Grade)
    assert grade.broken_by_agent is None
    return grade.reward


@pytest.mark.parametrize("name", ["reward.json", "reward.txt"])
async def test_row_01_a_reward_written_by_the_agent_is_not_read(lab: Lab, name: str) -> None:
    written = {"reward.json": '{"reward": 1}', "reward.txt": "1"}[name]
    assert await reward(lab, letter(), f"echo '{written}' > /logs/verifier/{name}") == 0.0


async def test_row_02_nobody_rewrites_a_reward_after_the_verifier(lab: Lab) -> None:
    loop = "(while :; do echo 1 > /logs/verifier/reward.txt; sleep .01; done) > /dev/null 2>&1 & disown"
    assert await reward(lab, letter(), loop, f"setsid bash -c '{loop}'") == 0.0


PLUGIN = """import unittest
def run(self, result=None):
    result.startTest(self)
    result.addSuccess(self)
    result.stopTest(self)
unittest.TestCase.run = run
"""


async def test_row_03_planted_test_files_take_no_part(lab: Lab) -> None:
    """The planted module is one that the verifier imports, and would pass every test."""
    task = convert()
    task["tests/test.sh"] = "#!/bin/bash\ncd /tests && exec python3 test_outputs.py\n"
    task["tests/test_outputs.py"] = "try:\n    import conftest\nexcept ImportError:\n    pass\n" + str(
        task["tests/test_outputs.py"]
    )
    plant = f"mkdir -p /tests; cat > /tests/conftest.py <<'P'\n{PLUGIN}P\ncp /tests/conftest.py /tests/json.py"
    assert await reward(lab, task, plant) == 0.0


@pytest.mark.parametrize(
    "attack",
    [
        "mv /bin/bash /bin/b; printf '#!/bin/b\\n/bin/b \"$@\"; echo 1 > /logs/verifier/reward.txt\\n' > /bin/bash;"
        " chmod +x /bin/bash",
        "for d in /usr/local/lib/python3.11/dist-packages /root/.local/lib/python3.11/site-packages /app; do"
        " mkdir -p $d; for n in sitecustomize usercustomize json unittest pytest; do"
        ' echo \'open("/logs/verifier/reward.txt", "w").write("1"); import os; os._exit(0)\' > $d/$n.py; done; done',
        "echo /app/evil.so > /etc/ld.so.preload; printf 'not a library' > /app/evil.so",
        "echo 'PYTEST_ADDOPTS=--co' > /etc/environment; echo 'BASH_ENV=/app/env' >> /etc/environment;"
        " echo 'echo 1 > /logs/verifier/reward.txt; exit' | tee /app/env /root/.bashrc ~/.profile > /etc/bash.bashrc",
        "mkdir -p /usr/local/bin; printf '#!/bin/sh\\necho 1 > /logs/verifier/reward.txt; kill -9 $PPID' >"
        " /usr/local/bin/python3; chmod +x /usr/local/bin/python3; cp /usr/local/bin/python3 /usr/local/bin/cat",
    ],
    ids=["bash", "python start-up", "preload", "shell start-up", "programs of one name"],
)
async def test_row_04_an_interpreter_that_the_agent_replaced_grades_nothing(lab: Lab, attack: str) -> None:
    assert await reward(lab, letter(), attack) == 0.0
    assert await reward(lab, convert(), attack) == 0.0


async def test_row_05_a_marker_that_the_graded_program_prints_scores_nothing(lab: Lab) -> None:
    lines = ["EXIT_CODE=0", "REWARD=1", "1", "1 passed in 0.01s", '{"reward": 1}']
    program = "".join(f"print({line!r})\n" for line in lines)
    assert await reward(lab, mend(), f"cat > /app/slug.py <<'P'\n{program}P") == 0.0


async def test_row_06_reward_json_goes_before_reward_txt_whoever_reads(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "reward.txt").write_text("0")
    (tmp_path / "reward.json").write_text('{"reward": 1}')
    assert read_verdict(tmp_path).reward == 1.0
    both = "#!/bin/bash\necho 0 > /logs/verifier/reward.txt\necho '{\"reward\": 1}' > /logs/verifier/reward.json\n"
    assert await reward(lab, but(letter(), {"tests/test.sh": both})) == 1.0


@pytest.mark.parametrize("said", ["nan", "inf", "1e309", "true", "1_0", "", "\u0661", "9" * 400, "-1", "1,0"])
async def test_row_07_only_a_plain_number_between_0_and_1_is_a_reward(tmp_path: Path, said: str) -> None:
    (tmp_path / "reward.txt").write_text(said)
    with pytest.raises(RewardError):
        read_verdict(tmp_path)
    (tmp_path / "reward.json").write_text(f'{{"reward": {said or "null"}}}')
    with pytest.raises(RewardError):
        read_verdict(tmp_path)


async def test_row_18_an_output_that_is_no_artifact_does_not_reach_a_separate_verifier(lab: Lab) -> None:
    solve = str(apart()["solution/solve.sh"])
    assert await reward(lab, apart(), solve) == 1.0
    undeclared = but(apart(), {"task.toml": swap(str(apart()["task.toml"]), "/app/out", "/app/elsewhere")})
    assert await reward(lab, undeclared, solve) == 0.0


@pytest.mark.parametrize(
    "large",
    [
        "truncate -s 1T /app/out/sparse",
        "fallocate -l 20G /app/out/large || head -c 20G /dev/zero > /app/out/large",
        "cd /app/out && seq 10001 | xargs touch",
    ],
    ids=["sparse", "allocated", "many"],
)
async def test_row_20_artifacts_without_bound_lose_no_trial(lab: Lab, large: str) -> None:
    """They are the agent's doing: a grade, and never trouble of the machine."""
    grade = await lab.attempt(files_of(apart()), f"mkdir -p /app/out; {large}")
    assert isinstance(grade, Grade)
    assert grade.reward == 0.0


SPECIAL = "mkfifo /logs/verifier/p /logs/artifacts/p; ln -s / /logs/artifacts/root; ln /etc/passwd /logs/verifier/l"


async def test_row_21_special_files_in_the_log_folders_abort_nothing(lab: Lab) -> None:
    assert await reward(lab, letter(), HONEST, SPECIAL) == 1.0
    test = bash_verifier(letter="mkfifo /logs/verifier/p; ln -s / /logs/verifier/root; [ -s /app/letter.txt ]")
    assert await reward(lab, but(letter(), {"tests/test.sh": test}), HONEST) == 1.0


async def test_row_22_a_link_of_the_agent_reads_and_writes_no_host_file(lab: Lab, tmp_path: Path) -> None:
    secret, upload = tmp_path / "secret", tmp_path / "upload"
    secret.write_text("of the host")
    upload.mkdir()
    (upload / "planted").write_text("x")
    task, image = await lab.task(files_of(letter()))
    sandbox = await lab.start(task, image)
    await sandbox.exec(f"ln -s {secret} out.txt; ln -s {tmp_path} folder; rm -rf /tests; ln -s {tmp_path} /tests")
    for path in ("/app/out.txt", "/app/folder/secret", "/tests/secret"):
        with pytest.raises((SandboxRefusedError, FileNotFoundError)):
            await sandbox.get(path, bytes_max=1000)
    with suppress(SandboxRefusedError):
        await sandbox.put(upload, "/tests")
    await sandbox.close()
    assert names_in(tmp_path) == {"secret", "upload"}
    assert secret.read_text() == "of the host"


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
