"""Our own part of a base's root file system, and the manifest that its digest is taken over."""

import hashlib
import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

FIXED_TIME_S = 1_700_000_000
SYSTEM_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
FOLDERS = {
    **dict.fromkeys(("usr", "etc", "dev", "run", "home", "app", "opt", "srv", "mnt", "media", "logs"), 0o755),
    **dict.fromkeys(("var", "var/lib", "var/log", "var/cache", "var/spool", "home/agent"), 0o755),
    **dict.fromkeys(("logs/agent", "logs/verifier", "logs/artifacts"), 0o777),
    **{"proc": 0o555, "sys": 0o555, "tmp": 0o1777, "var/tmp": 0o1777, "root": 0o700},
}
FOLDERS_OPEN_TO_ALL = {"tmp": 0o1777, "logs/agent": 0o777, "logs/verifier": 0o777, "logs/artifacts": 0o777}
"""Every sandbox has these, as part of the writable layer, /tmp too: grading looks at what an agent left there."""
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
    "agent:x:1000:1000:agent:/home/agent:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\ndaemon:x:1:\nadm:x:4:\ntty:x:5:\nagent:x:1000:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost envwheel\n::1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\nservices: files\n",
    "etc/gitconfig": "[user]\n\tname = envwheel\n\temail = envwheel@localhost\n[init]\n\tdefaultBranch = main\n"
    "[safe]\n\tdirectory = *\n[advice]\n\tdetachedHead = false\n",
    "etc/shells": "/bin/sh\n/bin/bash\n",
    "etc/hostname": "envwheel\n",
}


def open_folder(path: Path, mode: int = 0o755) -> None:
    """Make a folder with this very mode, whatever the umask."""
    path.mkdir(exist_ok=True)
    path.chmod(mode)


def write_skeleton(root: Path) -> None:
    """Folders and the few files of /etc that programs need; over a root with packages it has the last word on both."""
    open_folder(root)
    for name, mode in FOLDERS.items():
        open_folder(root / name, mode)
    for name, text in FILES.items():
        (root / name).write_text(text)
        (root / name).chmod(0o644)


def pin_times(root: Path) -> None:
    for folder, _, names in os.walk(root, topdown=False):
        for name in [*names, "."]:
            os.utime(Path(folder, name), (FIXED_TIME_S, FIXED_TIME_S), follow_symlinks=False)


def manifest(kind: str, root: Path, host_binds: tuple[Path, ...]) -> bytes:
    """The text whose sha256 is the digest of a base."""
    return "".join(f"{line}\n" for line in _lines(kind, root, host_binds)).encode("utf-8", "surrogateescape")


def _lines(kind: str, root: Path, host_binds: tuple[Path, ...]) -> Iterator[str]:
    yield f"base {kind} 1 {platform.machine()}"
    yield from file_lines(root, "", content=True)
    if not host_binds:
        return
    packages = debian_packages()
    yield from (f"package {line}" for line in packages)
    listed = ["/usr/bin", "/usr/sbin", "/usr/local"]
    if not packages:
        listed += [
            "/usr/lib",
            "/usr/lib64",
            "/usr/libexec",
            *(str(bind) for bind in host_binds if bind != Path("/usr")),
        ]
    for folder in listed:
        yield from file_lines(Path(folder), folder, content=False)


def debian_packages() -> list[str]:
    """Installed packages with versions; none on a host without dpkg."""
    query = shutil.which("dpkg-query")
    if query is None:
        return []
    form = "${db:Status-Status} ${Package} ${Version} ${Architecture}\n"
    answer = subprocess.run([query, "-W", "-f", form], check=True, capture_output=True, text=True)  # noqa: S603
    return sorted(
        line.removeprefix("installed ") for line in answer.stdout.splitlines() if line.startswith("installed ")
    )


def file_lines(root: Path, shown: str, *, content: bool) -> Iterator[str]:
    """One line a file, link or folder, in order of names: mode, size, and target or (with `content`) sha256."""
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted([*names, *folders]):
            place = Path(folder, name)
            status = place.lstat()
            path = f"{shown}/{place.relative_to(root)}".encode("utf-8", "surrogateescape")
            detail = "-"
            if stat.S_ISLNK(status.st_mode):
                detail = os.fspath(place.readlink())
            elif stat.S_ISREG(status.st_mode) and content:
                detail = hashlib.sha256(place.read_bytes()).hexdigest()
            size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
            yield f"file {status.st_mode:o} {size} {detail!r} {path!r}"
