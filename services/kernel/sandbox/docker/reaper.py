"""Finds and removes what dead processes left in an engine. Owners are told alive from dead by the lock on their folder;
where that folder's place is not to be seen from here, by their process; where neither can be told, it is left alone.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from services.kernel.sandbox.docker.engine import Engine
from services.kernel.sandbox.docker.options import LABEL, OWNER_LABEL, PROCESS_LABEL
from services.kernel.sandbox.owner import LOCK, PREFIX, remove_if_dead, take_lock

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
START_FIELD = 19
"""Of /proc/PID/stat, counted from behind the name: when the process started, in ticks since the boot."""


@dataclass(frozen=True)
class Reaped:
    """Names of containers."""

    removed: tuple[str, ...]
    alive: tuple[str, ...]
    """Of living owners."""
    unknown: tuple[str, ...]
    """Of owners on another machine or in another PID namespace, whose folders are not seen from here."""


def this_process() -> str:
    """Boot, PID namespace, pid and start: no other process ever has the same."""
    return f"{_here()}/{os.getpid()}/{_started(os.getpid())}"


def _here() -> str:
    return f"{BOOT_ID.read_text().strip()}/{Path('/proc/self/ns/pid').stat().st_ino}"


def _started(pid: int) -> str:
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return "-"
    return line[line.rindex(b")") + 2 :].split()[START_FIELD].decode()


def is_dead(labels: dict[str, str]) -> bool | None:
    """Whether the owner that the labels name has ended; None where that cannot be told from here."""
    folder = Path(labels.get(OWNER_LABEL, "/nowhere/at all"))
    if folder.name.startswith(PREFIX) and folder.parent.is_dir():
        if not (folder / LOCK).is_file():
            return True
        lock_fd = take_lock(folder / LOCK)
        if lock_fd is not None:
            os.close(lock_fd)
        return lock_fd is not None
    match = re.fullmatch(r"(.+/\d+)/(\d+)/(\d+)", labels.get(PROCESS_LABEL, ""))
    if match and match[1] == _here():
        return _started(int(match[2])) != match[3]
    return None


def reap(engine: Engine) -> Reaped:
    """Remove containers of dead owners, and their folders.

    Raises:
        SandboxError: the engine does not answer.
    """
    found: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    folders: set[Path] = set()
    for container in engine.containers(LABEL):
        labels = container["Labels"]
        dead = is_dead(labels)
        found[dead].append(container["Names"][0].strip("/") if container["Names"] else container["Id"][:12])
        if dead:
            engine.remove(container["Id"])
            if OWNER_LABEL in labels:
                folders.add(Path(labels[OWNER_LABEL]))
    for folder in folders:
        if folder.name.startswith(PREFIX) and (folder / LOCK).is_file():
            remove_if_dead(folder)
    return Reaped(*(tuple(sorted(found[dead])) for dead in (True, False, None)))
