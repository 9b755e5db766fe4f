"""Which user each process of the mesh is: one of its own where we are root, else all the same; said plainly."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from services.kernel.runfile import Deployment

UID_FIRST = 64100
"""Uids from here on are ours: one hundred a role. They need no entry in /etc/passwd."""
GID = 64100
"""The group of all services: it may write to the artifact store."""
ROLES = ("proposer", "validator", "solver", "trainer", "observer")
SOURCE = Path(__file__).parents[2]
"""Where `services` and `schemas` lie: the checkout, or site-packages."""


@dataclass(frozen=True)
class Users:
    separate: bool
    why: str = ""

    def uid_of(self, role: str, number: int) -> int | None:
        """Stays the same over restarts, because the service's folder belongs to it."""
        return UID_FIRST + 1 + 100 * ROLES.index(role) + number if self.separate else None

    def command(self, folder: Path, uid: int | None, shown: list[Path], program: list[str]) -> list[str]:
        """The argv that starts `program` as that user in that folder, ended with this process."""
        visible = [str(path) for path in visible_paths(shown)]
        who = ["-", "-"] if uid is None else [str(uid), str(GID)]
        launch = [sys.executable, "-m", "services.cli.launch", str(os.getpid()), *who, str(folder)]
        return [*launch, *visible, "--", *program]

    def __str__(self) -> str:
        return "separate" if self.separate else f"same: {self.why}"


def visible_paths(shown: list[Path]) -> list[Path]:
    """All that a service reads besides the system: this Python, its packages, our source, and `shown`."""
    python = Path(os.path.realpath(sys.executable)).parents[1]
    wanted = {Path(sys.prefix), Path(sys.base_prefix), python, SOURCE, *shown}
    found = sorted(path.absolute() for path in wanted)
    return [path for path in found if not any(path != above and path.is_relative_to(above) for above in found)]


def choose_users(deployment: Deployment, run: Path) -> Users:
    """Tries it for real with one process of another user."""
    if deployment.users == "same":
        return Users(False, "run.toml says so")
    if os.geteuid() != 0:
        return Users(False, "not started as root")
    if deployment.sandbox == "docker":
        return Users(False, "who commands a Docker engine can do what root can")
    separate = Users(True)
    probe = [sys.executable, "-c", "import msgspec, services.kernel, schemas"]
    command = separate.command(run, UID_FIRST, [run], probe)
    tried = subprocess.run(  # noqa: S603 - our own program and arguments
        command, capture_output=True, text=True, timeout=60, check=False, env=clean_environment()
    )
    if tried.returncode == 0:
        return separate
    last = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
    return Users(False, f"another user cannot run {sys.executable} here ({last})")


def clean_environment() -> dict[str, str]:
    """What a service inherits: no credentials, no settings of the shell that started the mesh. One thread a process."""
    kept = {name: os.environ[name] for name in ("LANG", "TZ", "ENVWHEEL_DEBUG") if name in os.environ}
    path = f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    pins = {"PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    threads["TOKENIZERS_PARALLELISM"] = "false"
    return {"PATH": path, "HOME": "/nonexistent", **pins, **threads, **kept}
