"""Layer directories as overlayfs keeps them: what is visible, how large, how to part and remove them.

A whiteout (character device 0:0) hides what lies below; a folder with the xattr `user.overlay.opaque` hides the folder
below. The trees belong to an agent: names, depths and modes are hostile, links are never followed.
"""

import fnmatch
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import BinaryIO

from services.kernel.sandbox.inside.links import leads_astray

OPAQUE = "user.overlay.opaque"
PATH_BYTES_MAX = 3800
"""The kernel takes paths below 4096 bytes, and a name has up to 255."""
CLOSED_DEPTH_MAX = 50
ENTRY_BYTES = 512
"""What an entry costs beside its blocks: a million empty files are not free."""


def is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def is_opaque(folder: Path) -> bool:
    try:
        return os.getxattr(folder, OPAQUE, follow_symlinks=False) in (b"y", b"x")
    except OSError:
        return False


def visible(layers: Sequence[Path], path: str) -> tuple[Path, os.stat_result] | None:
    """Where `path` (relative, no `..`) of the merged tree comes from; None where there is nothing or a link is on the
    way.
    """
    candidates = [layer for layer in reversed(layers) if layer.is_dir()]
    found: tuple[Path, os.stat_result] | None = None
    for depth in range(1, len(Path(path).parts) + 1):
        below: list[Path] = []
        found = None
        for layer in candidates:
            place = layer.joinpath(*Path(path).parts[:depth])
            try:
                status = place.lstat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            if is_whiteout(status):
                break
            found = found or (place, status)
            if not stat.S_ISDIR(status.st_mode):
                break
            below.append(layer)
            if is_opaque(place):
                break
        if found is None or (not stat.S_ISDIR(found[1].st_mode) and depth < len(Path(path).parts)):
            return None
        candidates = below
    return found


def merged_files(layers: Sequence[Path]) -> Iterator[tuple[str, Path, int]]:
    """Every visible regular file of a stack of layers at rest: its absolute path in it, where it lies, its size.

    Raises OSError for a path too long or a folder closed to this user.
    """
    pending = [("", [layer for layer in reversed(layers) if layer.is_dir()])]
    while pending:
        path, folders = pending.pop()
        found: dict[str, list[tuple[Path, os.stat_result]]] = {}
        for folder in folders:
            with os.scandir(folder) as entries:
                for entry in entries:
                    found.setdefault(entry.name, []).append((Path(entry.path), entry.stat(follow_symlinks=False)))
        for name, places in sorted(found.items()):
            place, status = places[0]
            if stat.S_ISREG(status.st_mode):
                yield f"{path}/{name}", place, status.st_size
            elif stat.S_ISDIR(status.st_mode):
                below = [place]
                for lower, lower_status in places[1:]:
                    if is_opaque(below[-1]) or not stat.S_ISDIR(lower_status.st_mode):
                        break
                    below.append(lower)
                pending.append((f"{path}/{name}", below))


def open_file(place: Path) -> BinaryIO:
    return place.open("rb")


def ensure_folder(upper: Path, layers: Sequence[Path], path: str, mode: int | None = None) -> None:
    """Make `path` (relative) a real folder of the merged tree by way of `upper`: no link that a lower layer planted is
    followed.

    A folder that is there keeps its mode unless `mode` is given.
    """
    parts = Path(path).parts
    for depth in range(1, len(parts) + 1):
        relative = str(Path(*parts[:depth]))
        there = visible([*layers, upper], relative)
        last = depth == len(parts)
        if (
            there is not None
            and stat.S_ISDIR(there[1].st_mode)
            and (not last or mode in (None, stat.S_IMODE(there[1].st_mode)))
        ):
            continue
        place = upper / relative
        _copy_parents(upper, layers, parts[: depth - 1])
        if there is None or not stat.S_ISDIR(there[1].st_mode):
            place.unlink(missing_ok=True)
        place.mkdir(exist_ok=True)
        place.chmod(mode if last and mode is not None else 0o755)


def ensure_file(upper: Path, layers: Sequence[Path], path: str) -> None:
    """Make `path` a plain file of the merged tree where it is none: a place for a file to be mounted on."""
    if str(Path(path).parent) != ".":
        ensure_folder(upper, layers, str(Path(path).parent))
    there = visible([*layers, upper], path)
    if there is None or not stat.S_ISREG(there[1].st_mode):
        _copy_parents(upper, layers, Path(path).parts[:-1])
        (upper / path).touch()


def _copy_parents(upper: Path, layers: Sequence[Path], parts: Sequence[str]) -> None:
    """The upper folder decides the mode of a merged one, so a parent made here repeats what was seen."""
    for depth in range(1, len(parts) + 1):
        relative = Path(*parts[:depth])
        if not (upper / relative).is_dir():
            there = visible(layers, str(relative))
            (upper / relative).mkdir()
            (upper / relative).chmod(stat.S_IMODE(there[1].st_mode) if there else 0o755)


def tree_bytes(root: Path, bytes_max: int, *, closed_depth: int = 0) -> int:
    """Disk use of a tree, counted no further than past `bytes_max`.

    Paths too long to be opened, and more than CLOSED_DEPTH_MAX folders in one another that are closed to their owner,
    count as too much: nothing can hide there.
    """
    total, pending = 0, [os.fspath(root)]
    while pending and total <= bytes_max:
        folder = pending.pop()
        if len(os.fsencode(folder)) > PATH_BYTES_MAX:
            return bytes_max + 1
        try:
            entries = _scan(folder)
        except PermissionError:
            total += _closed_bytes(folder, bytes_max - total, closed_depth + 1)
            continue
        total += sum(entry_bytes for entry_bytes, _ in entries)
        pending += [below for _, below in entries if below]
    return total


def _scan(folder: str) -> list[tuple[int, str]]:
    """Bytes of each entry, and its path where it is a folder. What vanishes meanwhile counts nothing."""
    try:
        with os.scandir(folder) as entries:
            found = list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    sizes = []
    for entry in found:
        try:
            status = entry.stat(follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            continue
        sizes.append((status.st_blocks * 512 + ENTRY_BYTES, entry.path if stat.S_ISDIR(status.st_mode) else ""))
    return sizes


def trees_bytes(roots: Iterable[Path], bytes_max: int) -> int:
    """Of several trees together."""
    total = 0
    for root in roots:
        total += tree_bytes(root, bytes_max - total)
        if total > bytes_max:
            break
    return total


def _closed_bytes(folder: str, bytes_max: int, closed_depth: int) -> int:
    """A folder closed to its owner (the host is not root) is open for the moment of the count."""
    if closed_depth > CLOSED_DEPTH_MAX:
        return bytes_max + 1
    try:
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return 0
    handle, mode = Path(f"/proc/self/fd/{fd}"), stat.S_IMODE(os.fstat(fd).st_mode)
    try:
        if mode & 0o500 == 0o500:
            return 0  # opened meanwhile: the next look sees it
        handle.chmod(mode | 0o700)
        try:
            return tree_bytes(Path(folder), bytes_max, closed_depth=closed_depth)
        finally:
            handle.chmod(mode)
    finally:
        os.close(fd)


def remove_tree(root: Path) -> None:
    """Delete a tree at rest, of any depth and any modes: folders are moved up before they are emptied, so no path grows
    long.
    """
    if not os.path.lexists(root):
        return
    trash = root.with_name(f"{root.name}.removed")
    trash.mkdir(exist_ok=True)
    serial = 0
    root.chmod(0o700)
    pending = [root.rename(trash / "0")]
    while pending:
        folder = pending.pop()
        for place in list(folder.iterdir()):
            if place.is_symlink() or not place.is_dir():
                place.unlink()
                continue
            serial += 1
            place.chmod(0o700)
            pending.append(place.rename(trash / str(serial)))
        folder.rmdir()
    trash.rmdir()


SYSTEM_PATHS = (
    "usr", "bin", "sbin", "lib*", "etc/ld.so*", "etc/alternatives", "etc/python*", "etc/perl", "etc/ssl/openssl.cnf",
    "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "pyproject.toml", "tox.ini", "setup.cfg",
)  # fmt: skip
"""What decides which programs, libraries and start-up modules run: Debian keeps python's sitecustomize, perl's first
module folder and the choice of awk in /etc, and OpenSSL loads engines that its configuration names. Asked for tests of
/tests, pytest goes by the settings and the conftest.py of the root folder too."""


def system_names(upper: Path) -> list[str]:
    """Entries of a layer that SYSTEM_PATHS match, and links or whiteouts on the way to them."""
    found: set[str] = set()
    for pattern in SYSTEM_PATHS:
        places = [""]
        for depth, part in enumerate(pattern.split("/"), 1):
            last = depth == pattern.count("/") + 1
            below = [path for place in places for path in (upper / place).iterdir() if fnmatch.fnmatch(path.name, part)]
            names = [os.fspath(path.relative_to(upper)) for path in below]
            folders = [name for name in names if stat.S_ISDIR((upper / name).lstat().st_mode)]
            found.update(names if last else set(names) - set(folders))
            places = folders
    return sorted(found)


def part_system(upper: Path, system: Path, below: Sequence[Path] = ()) -> None:
    """Move SYSTEM_PATHS and links that lead astray of a writable layer at rest into the layer `system`. `below`: what
    both lie over, bottom first.

    Over an image, `upper` then shows the image's own programs; `upper` and `system` together show what there was.
    """
    system.mkdir()
    with _opened(upper, system) as modes:
        names = system_names(upper)
        made: dict[str, int] = {}
        for name in [*names, *_links_astray(upper, below, names)]:
            for depth in range(1, name.count("/") + 1):
                relative = os.fspath(Path(*Path(name).parts[:depth]))
                if not (system / relative).exists():
                    (system / relative).mkdir(mode=0o700)
                    made[relative] = modes.get(relative, stat.S_IMODE((upper / relative).stat().st_mode))
            move(upper / name, system / name)
        for relative in reversed(made):
            (system / relative).chmod(made[relative])


def join_system(upper: Path, system: Path) -> None:
    """Undo `part_system`: everything into `upper`; `system` is removed."""
    with _opened(upper, system), _opened(system, upper):
        pending = [""]
        while pending:
            folder = pending.pop()
            for place in list((system / folder).iterdir()):
                name = os.fspath(place.relative_to(system))
                if _is_folder(place) and _is_folder(upper / name):
                    pending.append(name)
                else:
                    move(place, upper / name)
    remove_tree(system)


def _links_astray(upper: Path, below: Sequence[Path], but: Sequence[str]) -> list[str]:
    """Links of a layer at rest that lead to where verifiers read, as one finds them over `below`; none within `but`.
    Paths too long to be opened are left out."""
    stack = [*below, upper]

    @cache
    def read_link(path: bytes) -> bytes | None:
        try:
            there = visible(stack, os.fsdecode(path[1:]))
        except OSError:
            return None  # closed to us, or too long: what a lower layer holds there was parted when that was saved
        return os.fsencode(there[0].readlink()) if there and stat.S_ISLNK(there[1].st_mode) else None

    links = [name for name, kind in _entries(upper, but) if kind == stat.S_IFLNK]
    return [name for name in links if leads_astray(b"/" + os.fsencode(name), read_link)]


def _entries(root: Path, but: Sequence[str] = ()) -> Iterator[tuple[str, int]]:
    """Relative path and kind of everything below, folders before what they hold."""
    pending = [""]
    while pending:
        folder = pending.pop()
        if len(os.fsencode(root / folder)) > PATH_BYTES_MAX:
            continue
        with os.scandir(root / folder) as entries:
            found = [(f"{folder}/{entry.name}".lstrip("/"), entry.stat(follow_symlinks=False)) for entry in entries]
        for name, status in found:
            if name in but:
                continue
            yield name, stat.S_IFMT(status.st_mode)
            if stat.S_ISDIR(status.st_mode):
                pending.append(name)


@contextmanager
def _opened(root: Path, other: Path) -> Iterator[dict[str, int]]:
    """Folders of a tree at rest that are closed to their owner are open inside the block, in which they may move to
    the same place below `other`; their modes, by name."""
    modes: dict[str, int] = {}
    try:
        for name, kind in _entries(root):
            if kind == stat.S_IFDIR and (mode := stat.S_IMODE((root / name).lstat().st_mode)) & 0o700 != 0o700:
                modes[name] = mode
                (root / name).chmod(mode | 0o700)
        yield modes
    finally:
        for name, mode in reversed(modes.items()):
            place = root / name if _is_folder(root / name) else other / name
            if _is_folder(place):
                place.chmod(mode)


def _is_folder(place: Path) -> bool:
    return place.is_dir() and not place.is_symlink()


def move(source: Path, target: Path) -> None:
    """Rename within one file system; a folder that its owner may not write is opened for the moment."""
    status = source.lstat()
    if stat.S_ISDIR(status.st_mode):
        source.chmod(0o700)
    source.rename(target)
    if stat.S_ISDIR(status.st_mode):
        target.chmod(stat.S_IMODE(status.st_mode))
