"""The base of every image: the host's own /usr shown read-only, or a root file system built from a lock of packages."""

import hashlib
import json
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from services.kernel.sandbox import packages
from services.kernel.sandbox.layers import remove_tree
from services.kernel.sandbox.protocol import Image, SandboxError
from services.kernel.sandbox.skeleton import SYSTEM_FOLDERS, manifest, open_folder, pin_times, write_skeleton

RECORD = "base.json"
MANIFEST = "manifest.txt"
LOCK = "packages.json"
ROOT = "root"


@dataclass(frozen=True)
class Base:
    kind: Literal["host", "built"]
    digest: str
    """sha256 of the manifest."""
    root: Path
    host_binds: tuple[Path, ...] = ()

    @property
    def manifest(self) -> Path:
        """What the digest covers, in lines: packages with versions, files with modes, sizes and, where built,
        sha256.
        """
        return self.root.parent / MANIFEST

    def image(self, workdir: str = "/app") -> Image:
        return Image(self.digest, (self.root,), self.host_binds, workdir)


def host_base(work_dir: Path) -> Base:
    """A base over this host's /usr: a small root of our own, with /usr (and /bin, /lib where they are not links to it)
    shown read-only.

    Its digest covers machine, glibc cache, every Debian package with its version, the files of /usr/bin, /usr/sbin and
    /usr/local by name, mode and size, and our own root by content; on other hosts all of /usr/lib too. Not covered:
    changed content of equal size. Takes under a second; the folder is named by the digest and used again.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix="base-", dir=work_dir))
    try:
        root = building / ROOT
        write_skeleton(root)
        shown = [Path("/usr")]
        for name in SYSTEM_FOLDERS:
            if Path("/", name).is_symlink():
                (root / name).symlink_to(Path("/", name).readlink())
            elif Path("/", name).is_dir():
                open_folder(root / name)
                shown.append(Path("/", name))
        _copy_loader_files(root / "etc")
        base = _describe("host", building, tuple(shown))
        return _put(base, building, work_dir / f"host-{base.digest[:16]}")
    finally:
        remove_tree(building)


def _copy_loader_files(etc: Path) -> None:
    """What decides which libraries and which of several programs of one name are used: see `layers.SYSTEM_PATHS`."""
    for name in ("ld.so.cache", "ld.so.conf", "debian_version"):
        if Path("/etc", name).is_file():
            shutil.copyfile(Path("/etc", name), etc / name)
            (etc / name).chmod(0o644)
    open_folder(etc / "alternatives")
    for link in Path("/etc/alternatives").glob("*"):
        if link.is_symlink() and "/man/" not in os.fspath(link.readlink()):
            (etc / "alternatives" / link.name).symlink_to(link.readlink())
    if Path("/usr/lib/os-release").exists():
        (etc / "os-release").symlink_to("../usr/lib/os-release")


def build_base(out_dir: Path, lock: Path | None = None) -> Base:
    """A root file system of its own in `out_dir`, from Debian packages that apt fetches and checks; takes well under a
    minute, as a user or as root. With `lock` (the packages.json of a base made before) exactly those packages by name,
    version and sha256, and so the same digest; without, today's newest. They are unpacked, their scripts do not run.

    Raises:
        SandboxError: apt or dpkg is missing, a package cannot be had, or is not the one that the lock names.
    """
    out_dir = out_dir.absolute()  # apt and overlayfs have a working directory of their own
    if out_dir.exists() and any(out_dir.iterdir()):
        raise SandboxError(f"{out_dir} is not empty: name a new folder for the base")
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix="base-", dir=out_dir.parent))
    try:
        wanted = packages.read_lock(lock) if lock else None
        with tempfile.TemporaryDirectory(prefix="packages-", dir=out_dir.parent) as fetched:
            found = packages.unpack(building / ROOT, Path(fetched), wanted)
        write_skeleton(building / ROOT)
        _let_all_read(building / ROOT)
        (building / LOCK).write_bytes(packages.lock_bytes(found))
        base = _describe("built", building, ())
        return _put(base, building, out_dir)
    finally:
        remove_tree(building)


def _let_all_read(root: Path) -> None:
    """Services of other users copy the base; in a sandbox everything belongs to its one user anyway."""
    for path in [root, *root.rglob("*")]:
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(stat.S_IMODE(mode) | (0o555 if path.is_dir() or mode & 0o100 else 0o444))


def _describe(kind: Literal["host", "built"], building: Path, host_binds: tuple[Path, ...]) -> Base:
    root = building / ROOT
    pin_times(root)
    text = manifest(kind, root, host_binds)
    (building / MANIFEST).write_bytes(text)
    digest = hashlib.sha256(text).hexdigest()
    record = {"kind": kind, "digest": digest, "host_binds": [os.fspath(bind) for bind in host_binds]}
    (building / RECORD).write_text(json.dumps(record, sort_keys=True) + "\n")
    building.chmod(0o755)
    return Base(kind, digest, root, host_binds)


def _put(base: Base, building: Path, place: Path) -> Base:
    """Move a finished base to its place. Where another process was quicker, its equal one is used."""
    if not (place / RECORD).exists():
        try:
            building.rename(place)
        except OSError as error:
            if not (place / RECORD).exists():
                raise SandboxError(f"cannot put the base at {place}: {error}") from error
    return Base(base.kind, base.digest, place / ROOT, base.host_binds)


def load_base(folder: Path) -> Base:
    """A base made before, in `folder` (which holds base.json). Its files are compared with its manifest.

    Raises:
        SandboxError: it is damaged, or it shows this host's /usr, which is not what it was.
    """
    try:
        record = json.loads((folder / RECORD).read_bytes())
        kind, digest, binds = record["kind"], record["digest"], tuple(Path(bind) for bind in record["host_binds"])
        recorded = (folder / MANIFEST).read_bytes()
    except (OSError, ValueError, KeyError) as error:
        raise SandboxError(f"{folder} holds no base: {error}. Make one with `envwheel base build`") from error
    now = manifest(kind, folder / ROOT, binds)
    if now != recorded or hashlib.sha256(recorded).hexdigest() != digest:
        changed = sorted(set(now.splitlines()) ^ set(recorded.splitlines()))[:3]
        raise SandboxError(
            f"base {digest[:12]} in {folder} is not what it was: make it anew; first differences: {changed}"
        )
    return Base(kind, digest, folder / ROOT, binds)
