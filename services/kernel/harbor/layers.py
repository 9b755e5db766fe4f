"""Layer directories seen as one tree, as overlayfs shows them, and the cache that holds them.

A path is followed inside the tree alone: links are resolved against the tree's root.
"""

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from services.kernel.sandbox.layers import remove_tree, visible

LINKS_MAX = 40
TOO_LONG = "a name has at most 255 bytes, a whole path fewer than 4096"


class LayerError(Exception):
    """A path that the tree cannot hold: through a file, or round and round through links."""


@dataclass(frozen=True)
class Place:
    """Where a path ends up in the tree."""

    path: str
    """Relative to the root, free of links; "" is the root."""
    kind: Literal["directory", "file", "absent"]


def locate(layers: Sequence[Path], path: str) -> Place:
    """Follows `path` from the root through `layers`, lowest first. What is missing below a directory is absent.

    Raises:
        LayerError: a part of the way is a file, or there are more than 40 links.
    """
    todo = path.split("/")[::-1]
    done: list[str] = []
    links = 0
    while todo:
        part = todo.pop()
        if part in ("", ".", ".."):
            done = done[:-1] if part == ".." else done
            continue
        found = _seen(layers, path, [*done, part])
        if found is not None and stat.S_ISLNK(found[1].st_mode):
            links += 1
            if links > LINKS_MAX:
                raise LayerError(f"{path!r}: more than {LINKS_MAX} links")
            target = str(found[0].readlink())
            done = [] if target.startswith("/") else done
            todo += target.split("/")[::-1]
            continue
        done.append(part)
        if found is None or not stat.S_ISDIR(found[1].st_mode):
            rest = [each for each in todo[::-1] if each not in ("", ".")]
            if ".." in rest or (found is not None and rest):
                raise LayerError(f"{path!r}: {'/'.join(done)!r} is not a directory")
            return Place("/".join([*done, *rest]), "absent" if found is None else "file")
    return Place("/".join(done), "directory")


def _seen(layers: Sequence[Path], path: str, parts: Sequence[str]) -> tuple[Path, os.stat_result] | None:
    try:
        return visible(layers, "/".join(parts))
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise LayerError(f"{path[:60]!r}…: {TOO_LONG}") from error


def directory_mode(layers: Sequence[Path], path: str) -> int:
    """Mode of the directory at `path` (free of links) as the tree shows it; 0755 where there is none."""
    found = visible(layers, path)
    return stat.S_IMODE(found[1].st_mode) if found else 0o755


class LayerCache:
    """Finished layers by key. Several processes may share one: a layer appears whole, by one rename, or not at all."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "layers").mkdir(parents=True, exist_ok=True)
        (root / "making").mkdir(exist_ok=True)

    def get(self, key: str) -> Path | None:
        path = self.root / "layers" / key
        return path if path.is_dir() else None

    @contextlib.contextmanager
    def making(self) -> Iterator[Path]:
        """A fresh directory on the cache's file system, removed at the end unless `keep` took it."""
        path = Path(tempfile.mkdtemp(dir=self.root / "making"))
        path.chmod(0o755)
        try:
            yield path
        finally:
            remove_tree(path)

    def keep(self, made: Path, key: str) -> Path:
        """Moves a finished directory to its key; where another process was first, that one's layer is used."""
        path = self.root / "layers" / key
        try:
            made.rename(path)
        except OSError:
            if not path.is_dir():
                raise
            remove_tree(made)
        return path
