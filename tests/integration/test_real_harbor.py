"""Our tasks are Harbor tasks: real Harbor 0.26 gives their solution 1 and an idle agent 0.

Harbor needs Python 3.12, so it lives in an environment of its own (`pip install harbor==0.26.0`), and
ENVWHEEL_HARBOR names its executable.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

import services.kernel.heldout
from services.kernel.archive import FileEntry, pack, unpack, write_tree
from services.kernel.skills.catalogue import skills_of
from services.kernel.skills.compose import compose
from services.kernel.skills.harbor_files import harbor_files
from services.kernel.skills.lexicon import Names
from tests.support.bash_box import bubblewrap
from tests.support.harbor_tasks import SEPARATE, SEPARATE_IMAGE, greeting

NAMED = os.environ.get("ENVWHEEL_HARBOR", "")
HARBOR = shutil.which(NAMED) if NAMED else None
TIMEOUT_S = 240
FAR = Path(services.kernel.heldout.__file__).parent / "far"
BY_HAND = ("almanac-cut-to-pieces", "prune-merged-branches")
BY_ENVWHEEL = {"made-in-git": ("git_branch",), "made-plain": (skills_of("sort")[0], skills_of("csv")[0])}
SUBSET = {
    "environment/Dockerfile": "FROM envwheel/base:1\nENV WORD=hi\nWORKDIR /srv\nWORKDIR deep\n"
    "COPY files/notes.txt copy.txt\n"
    'RUN test "$PWD" = /srv/deep \\\n && echo "$WORD" > word.txt\nWORKDIR /app\n',
    "solution/solve.sh": '#!/bin/bash\nset -euo pipefail\n[ "$PWD" = /app ] && [ "$(id -u)" = 0 ]\n'
    '[ "$(sed 1,2d /proc/net/dev | cut -d: -f1 | tr -d " ")" = lo ]\nif touch /usr/mark; then exit 1; fi\n'
    '[ "$(cat /srv/deep/copy.txt)" = "$(printf "kilo\\nlima")" ]\ncp /srv/deep/word.txt hello.txt\n',
}
"""What a Dockerfile of the subset promises, checked from inside: the reward is 1 only if all of it holds."""
APART = {"separate": SEPARATE, "separate-image": SEPARATE_IMAGE}
FAILING_BUILD = {"environment/Dockerfile": "FROM envwheel/base:1\nWORKDIR /app\nRUN false\n"}

pytestmark = [
    pytest.mark.harbor,
    pytest.mark.slow,
    pytest.mark.skipif(HARBOR is None, reason=f"ENVWHEEL_HARBOR={NAMED!r} names no harbor executable"),
]


@dataclass(frozen=True)
class Job:
    """A finished Harbor job, by the task's folder name."""

    rewards: Mapping[str, float]
    exceptions: Mapping[str, str]
    output: str
    left_behind: frozenset[str]
    """New folders of sandboxes in the temporary folder."""


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of task directories as Harbor takes a data set."""
    folder = tmp_path_factory.mktemp("tasks")
    for name in BY_HAND:
        shutil.copytree(FAR / name, folder / name)
    for name, skills in BY_ENVWHEEL.items():
        rng = Random(name)
        files = harbor_files(compose(rng, skills, Names(rng), distractors=2), slug=name)
        entries = {path: FileEntry(spec.content, spec.mode == 0o755) for path, spec in files.items()}
        # As a proposal travels: through the canonical archive.
        write_tree(unpack(pack(entries)), folder / name)
    write_tree(greeting(SUBSET), folder / "subset")
    write_tree(greeting(FAILING_BUILD), folder / "failing-build")
    for name, changes in APART.items():
        write_tree(greeting(changes), folder / name)
    return folder


@pytest.fixture(scope="module", params=["oracle", "nop"])
def job(request: pytest.FixtureRequest, tasks: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Job]:
    return request.param, _run(request.param, tasks, tmp_path_factory.mktemp("jobs"))


def test_the_solution_earns_all_and_an_idle_agent_nothing(job: tuple[str, Job], tasks: Path) -> None:
    assert "RUN " in (tasks / "made-in-git/environment/Dockerfile").read_text()
    assert "RUN " not in (tasks / "made-plain/environment/Dockerfile").read_text()
    agent, done = job
    expected = 1.0 if agent == "oracle" else 0.0
    assert done.rewards == dict.fromkeys([*BY_HAND, *BY_ENVWHEEL, "subset", *APART], expected), done.output


def test_a_build_that_fails_is_an_error_and_no_reward(job: tuple[str, Job]) -> None:
    _, done = job
    assert done.exceptions.keys() == {"failing-build"}
    assert done.exceptions["failing-build"].startswith("RuntimeError: RUN false: exit code 1")


def test_a_finished_job_leaves_no_sandbox_behind(job: tuple[str, Job]) -> None:
    assert job[1].left_behind == set()


def test_harbors_own_lint_finds_nothing_but_the_shared_verifier(tasks: Path) -> None:
    """Shared is the form that every reader of Harbor tasks takes; lint gives its findings no grades."""
    folders = [str(tasks / name) for name in (*BY_HAND, *BY_ENVWHEEL)]
    findings = json.loads(_harbor("lint", "--json", *folders).stdout)
    assert {(found["rule"], Path(found["path"]).parent.name) for found in findings} == {
        ("shared-verifier", Path(folder).name) for folder in folders
    }


def _run(agent: str, tasks: Path, jobs: Path) -> Job:
    before = _sandbox_folders()
    environment = "harbor_environment:BubblewrapEnvironment"
    ended = _harbor(
        *("run", "-p", str(tasks), "-a", agent, "-e", environment),
        *("-o", str(jobs), "--job-name", agent, "-n", "2", "-q", "--yes"),
    )
    rewards, exceptions = {}, {}
    for path in (jobs / agent).glob("*/result.json"):
        result = json.loads(path.read_text())
        name = Path(result["task_id"]["path"]).name
        if result["exception_info"] is not None:
            exceptions[name] = "{exception_type}: {exception_message}".format_map(result["exception_info"])
        else:
            rewards[name] = result["verifier_result"]["rewards"]["reward"]
    return Job(rewards, exceptions, ended.stdout + ended.stderr, _sandbox_folders() - before)


def _harbor(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert HARBOR is not None
    support = Path(__file__).parents[1] / "support"
    env = os.environ | {
        "PYTHONPATH": str(support),
        "PYTHONDONTWRITEBYTECODE": "1",
        # Otherwise each start asks the network for a price table, three times.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "ENVWHEEL_BWRAP": bubblewrap(),
    }
    return subprocess.run(
        [HARBOR, *arguments], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S
    )


def _sandbox_folders() -> frozenset[str]:
    return frozenset(path.name for path in Path(tempfile.gettempdir()).glob("envwheel-harbor-*"))
