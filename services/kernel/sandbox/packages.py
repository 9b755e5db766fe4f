"""Debian packages for a base: apt finds, fetches and verifies them, dpkg-deb unpacks them; nothing of them is run.

Needs apt and dpkg and Debian's archive keyring, no root, and touches none of the host's package state.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import asdict, dataclass
from pathlib import Path

from services.kernel.sandbox.protocol import SandboxError
from services.kernel.sandbox.skeleton import SYSTEM_FOLDERS, open_folder

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
WANTED = (
    "base-files", "bash", "dash", "coreutils", "findutils", "grep", "sed", "mawk", "tar", "gzip", "bzip2", "xz-utils",
    "zip", "unzip", "diffutils", "patch", "file", "git", "python3", "procps", "util-linux", "bsdextrautils", "jq",
    "debianutils", "hostname", "ncurses-base", "libc-bin", "tzdata", "sqlite3", "openssl", "mount",
)  # fmt: skip
ALTERNATIVES = {"awk": "mawk", "nawk": "mawk", "which": "which.debianutils", "pager": "more"}
"""Which of several programs a name means: packages set this in scripts, which do not run here."""
FETCH_TIMEOUT_S = 900


@dataclass(frozen=True, order=True)
class Package:
    name: str
    version: str
    sha256: str


def read_lock(path: Path) -> list[Package]:
    """Raises SandboxError where it is no lock."""
    try:
        return [Package(**entry) for entry in json.loads(path.read_bytes())["packages"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SandboxError(f"{path} is no lock of packages: {error}") from error


def lock_bytes(found: list[Package]) -> bytes:
    entries = [asdict(package) for package in sorted(found)]
    return json.dumps({"packages": entries}, indent=1).encode() + b"\n"


def unpack(root: Path, room: Path, wanted: list[Package] | None) -> list[Package]:
    """Fetch into `room`, check, unpack into `root`: what was found, by name, version and sha256."""
    archives = fetch(room, [f"{package.name}={package.version}" for package in wanted] if wanted else list(WANTED))
    found = [describe(archive) for archive in archives]
    if wanted is not None and sorted(found) != sorted(wanted):
        differing = sorted({package.name for package in set(found) ^ set(wanted)})
        raise SandboxError(f"the archive's packages are not those of the lock: {', '.join(differing[:10])}")
    open_folder(root)
    open_folder(root / "usr")
    for name in SYSTEM_FOLDERS[:5]:
        open_folder(root / "usr" / name)
        (root / name).symlink_to(f"usr/{name}")
    for archive in archives:
        extract(archive, root)
    open_folder(root / "etc/alternatives")
    for name, program in ALTERNATIVES.items():
        if (root / "usr/bin" / program).exists():
            (root / "etc/alternatives" / name).symlink_to(f"/usr/bin/{program}")
            (root / "usr/bin" / name).unlink(missing_ok=True)
            (root / "usr/bin" / name).symlink_to(f"/etc/alternatives/{name}")
    return found


def need(program: str, package: str) -> str:
    path = shutil.which(program, path="/usr/bin:/usr/sbin:/bin:/sbin")
    if path is None:
        raise SandboxError(f'{program} is missing: install the package {package}, or use base = "host"')
    return path


def fetch(room: Path, wanted: list[str]) -> list[Path]:
    """The .deb files of `wanted` and all they depend on, verified by apt against the signed archive."""
    if not KEYRING.exists():
        raise SandboxError(f'{KEYRING} is missing: install debian-archive-keyring, or use base = "host"')
    for name in ("state/lists/partial", "cache/archives/partial", "etc"):
        (room / name).mkdir(parents=True)
    (room / "status").touch()
    (room / "sources.list").write_text(host_archives())
    options = {
        "Dir::State": room / "state", "Dir::State::status": room / "status", "Dir::Cache": room / "cache",
        "Dir::Etc::sourcelist": room / "sources.list", "Dir::Etc::sourceparts": room / "etc",
        "Dir::Etc::preferencesparts": room / "etc", "APT::Install-Recommends": "false", "Debug::NoLocking": "true",
        "APT::Sandbox::User": "", "Acquire::Languages": "none", "Acquire::Retries": "2",
    }  # fmt: skip
    apt = [
        need("apt-get", "apt"),
        "-qq",
        *(word for key, value in options.items() for word in ("-o", f"{key}={value}")),
    ]
    run([*apt, "update"], "update")
    run([*apt, "install", "--download-only", "--yes", *wanted], "fetch")
    return sorted((room / "cache/archives").glob("*.deb"))


def host_archives() -> str:
    """Lines of a sources.list: the Debian archives that this host's apt knows, and nothing else of its sources."""
    wanted = f"deb [signed-by={KEYRING}] $(REPO_URI) $(CODENAME) $(COMPONENT)|$(ORIGIN)"
    listing = run([need("apt-get", "apt"), "indextargets", "--format", wanted, "Created-By: Packages"], "list")
    lines = {line.removesuffix("|Debian") for line in listing.splitlines() if line.endswith("|Debian")}
    if not lines:
        raise SandboxError('apt knows no Debian archive: run `apt-get update` first, or use base = "host"')
    return "".join(f"{line}\n" for line in sorted(lines))


def run(argv: list[str], what: str) -> str:
    """What the program said."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise SandboxError(f"apt could not {what} packages within {FETCH_TIMEOUT_S} s") from error
    if done.returncode:
        raise SandboxError(f"apt could not {what} packages: {done.stderr.strip()[-1000:]}")
    return done.stdout


def describe(archive: Path) -> Package:
    argv = [need("dpkg-deb", "dpkg"), "--field", str(archive), "Package", "Version"]
    answer = subprocess.run(argv, check=True, capture_output=True, text=True).stdout  # noqa: S603
    fields = dict(line.split(": ", 1) for line in answer.splitlines())
    return Package(fields["Package"], fields["Version"], hashlib.sha256(archive.read_bytes()).hexdigest())


def keep_member(member: tarfile.TarInfo, _path: str) -> tarfile.TarInfo:
    """Absolute links are right here. Set as an attribute, because the first Python 3.11 know no argument for it."""
    return member


def extract(archive: Path, root: Path) -> None:
    """Owner and special modes are not kept: everything in a sandbox belongs to its one user."""
    argv = [need("dpkg-deb", "dpkg"), "--fsys-tarfile", str(archive)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)  # noqa: S603
    with process, tarfile.open(fileobj=process.stdout, mode="r|") as tar:
        tar.extraction_filter = keep_member
        for member in tar:
            member.mode &= 0o755
            member.uid, member.gid = os.geteuid(), os.getegid()
            if member.isdir() and (root / member.name).is_dir():
                (root / member.name).chmod(member.mode)
                continue  # /bin, /lib and the like are links to /usr, and stay
            tar.extract(member, root, numeric_owner=True)
    if process.returncode:
        raise SandboxError(f"dpkg-deb could not unpack {archive.name}")
