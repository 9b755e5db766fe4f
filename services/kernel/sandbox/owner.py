"""Who a backend's things belong to: a process that holds a lock on a folder of its own as long as it lives."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.kernel.sandbox.layers import remove_tree
from services.kernel.sandbox.protocol import SandboxError

LOCK = "lock"
PREFIX = "owner-"


def take_lock(path: Path) -> int | None:
    """Descriptor of a lock file held by this process; None where another one holds it."""
    fd = open_lock(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def wait_for_lock(path: Path) -> int:
    fd = open_lock(path)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    fd = wait_for_lock(path)
    try:
        yield
    finally:
        os.close(fd)


def claim_folder(work_dir: Path) -> tuple[Path, int]:
    """A new folder in `work_dir` and the descriptor of its lock; folders of owners that died are removed.

    Raises:
        SandboxError: the folder cannot be used.
    """
    try:
        work_dir.mkdir(parents=True, exist_ok=True)
        with hold_lock(work_dir / LOCK):
            for folder in work_dir.glob(f"{PREFIX}*"):
                remove_if_dead(folder)
            owner = Path(tempfile.mkdtemp(prefix=PREFIX, dir=work_dir))
            lock_fd = wait_for_lock(owner / LOCK)
    except OSError as error:
        raise SandboxError(f"cannot use the work folder {work_dir}: {error}") from error
    return owner, lock_fd


def remove_if_dead(folder: Path) -> bool:
    """Whether nobody holds the folder's lock; then it is removed."""
    lock_fd = take_lock(folder / LOCK)
    if lock_fd is None:
        return False
    try:
        remove_tree(folder)
    finally:
        os.close(lock_fd)
    return True
