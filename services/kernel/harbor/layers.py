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

from services.kernel.sandbox.layers import remove_tree, tree_bytes, visible

LINKS_MAX = 40
LAYER_BYTES_MAX = 2**40
"""Where counting the bytes of one layer ends."""
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
        for name in ("making", "used"):
            (root / name).mkdir(exist_ok=True)

    def get(self, key: str) -> Path | None:
        path = self.root / "layers" / key
        if not path.is_dir():
            return None
        # A mark beside it, since the layer's own times are part of what a sandbox shows.
        (self.root / "used" / key).touch()
        return path

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
        (self.root / "used" / key).touch()
        try:
            made.rename(path)
        except OSError:
            if not path.is_dir():
                raise
            remove_tree(made)
        return path

    def sizes(self) -> dict[str, int]:
        """Bytes on disk of each layer, by key, the least recently used first."""
        marks = {mark.name: mark.stat().st_mtime_ns for mark in (self.root / "used").iterdir()}
        keys = sorted((path.name for path in (self.root / "layers").iterdir()), key=lambda key: marks.get(key, 0))
        return {key: tree_bytes(self.root / "layers" / key, LAYER_BYTES_MAX) for key in keys}

    def trim(self, bytes_max: int) -> None:
        """Removes what killed processes left half-made and, until the rest fits, the least recently used layers.

        Only where nobody else uses the cache: no sandbox may stand on a layer that goes.
        """
        for left in (self.root / "making").iterdir():
            remove_tree(left)
        sizes = self.sizes()
        total = sum(sizes.values())
        for key, size in sizes.items():
            if total <= bytes_max:
                break
            remove_tree(self.root / "layers" / key)
            (self.root / "used" / key).unlink(missing_ok=True)
            total -= size
