"""Becomes one service process: its own user, folder and environment, and an end with its parent.

    python -m services.cli.launch PARENT UID GID FOLDER VISIBLE... -- PROGRAM ARGUMENT...

As root with a UID (else `-`): where a path in VISIBLE lies below a folder that others may not pass (a venv or a Python
below /root), that folder is covered by an empty one in a mount namespace of this process alone, with only the VISIBLE
paths in it. So the service reads what it needs and nothing else of that folder; nothing on the machine changes.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_PRIVATE, _MS_NOSUID, _MS_NODEV = 0x1000, 0x4000, 0x40000, 0x2, 0x4


def main(argv: list[str]) -> None:
    parent, uid, gid, folder, *rest = argv
    cut = rest.index("--")
    visible, command = [Path(path) for path in rest[:cut]], rest[cut + 1 :]
    libc = ctypes.CDLL(None, use_errno=True)
    if uid != "-":
        open_the_way(libc, visible)
        os.setgroups([])
        os.setresgid(int(gid), int(gid), int(gid))
        os.setresuid(int(uid), int(uid), int(uid))
    os.umask(0o002)
    os.chdir(folder)
    # Behind the change of user: that clears it.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit("the supervisor is gone")
    os.execv(command[0], command)  # noqa: S606 - our own program and arguments


def open_the_way(libc: ctypes.CDLL, visible: list[Path]) -> None:
    """Raises OSError where this process may not mount."""
    shut = {top for path in visible if (top := first_shut(path)) is not None}
    if not shut:
        return
    _check(libc.unshare(_CLONE_NEWNS), "unshare")
    _mount(libc, b"none", Path("/"), None, _MS_REC | _MS_PRIVATE, None)
    for top in sorted(shut):
        inside = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in visible if path.is_relative_to(top)]
        _mount(libc, b"tmpfs", top, b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=0755,size=64k")
        for path, handle in inside:
            path.mkdir(parents=True, exist_ok=True)
            _mount(libc, f"/proc/self/fd/{handle}".encode(), path, None, _MS_BIND | _MS_REC, None)
            os.close(handle)


def first_shut(path: Path) -> Path | None:
    """The topmost folder on the way to `path` that others may not pass; None where the way is open."""
    for folder in reversed(path.parents):
        if not folder.stat().st_mode & 0o001:
            return folder
    return None


def _mount(libc: ctypes.CDLL, source: bytes, target: Path, kind: bytes | None, flags: int, data: bytes | None) -> None:
    _check(libc.mount(source, os.fsencode(target), kind, ctypes.c_ulong(flags), data), f"mount {target}")


def _check(code: int, what: str) -> None:
    if code != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main(sys.argv[1:])
