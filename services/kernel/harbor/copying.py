"""COPY, ADD and WORKDIR: a layer directory that, stacked on the image, shows what they ask for."""

import os
import posixpath
from collections.abc import Mapping
from pathlib import Path

from services.kernel.archive import FileEntry
from services.kernel.harbor.dockerfile import Copy, NeedsDockerError
from services.kernel.harbor.layers import LayerError, directory_mode, locate
from services.kernel.harbor.patterns import expand, has_wildcard
from services.kernel.sandbox.protocol import Image

SOURCE_TIME_S = 1_767_225_600
"""2026-01-01: the time of every file that a build makes or copies, so that listings are the same everywhere."""
_ARCHIVES = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")


def files_of(step: Copy, context: Mapping[str, FileEntry]) -> dict[str, FileEntry]:
    """What the step takes from the context; a source that is not there takes nothing."""
    patterns = [path for each in step.sources for path in (expand(each, context) if has_wildcard(each) else [each])]
    return {name: context[name] for path in patterns for name in _below(path, context)}


def _found(source: str, context: Mapping[str, FileEntry]) -> list[str]:
    """Files and folders that a source names. Raises LayerError where it names none."""
    found = expand(source, context) if has_wildcard(source) else [source] if _below(source, context) else []
    if not found:
        raise LayerError(f"COPY {source!r}: there is no such file in the build context")
    return found


def _below(source: str, context: Mapping[str, FileEntry]) -> list[str]:
    return [name for name in context if not source or name == source or name.startswith(source + "/")]


def _is_archive(content: bytes) -> bool:
    return content.startswith(_ARCHIVES) or content[257:262] == b"ustar"


class LayerWriter:
    """Fills one layer directory so that, stacked on the image, it shows what COPY and WORKDIR ask for."""

    def __init__(self, layer: Path, image: Image) -> None:
        self._layer = layer
        self._below = image.lowers
        self._layers = (*image.lowers, layer)
        self._host_binds = image.host_binds

    def directory(self, path: str) -> str:
        """Makes a directory and what is missing above it; gives its path free of links."""
        place = locate(self._layers, path)
        if place.kind == "file":
            raise LayerError(f"{path!r} is a file")
        self._check_shown(place.path)
        parts = place.path.split("/") if place.path else []
        for count in range(1, len(parts) + 1):
            made = "/".join(parts[:count])
            if not (self._layer / made).is_dir():
                mode = directory_mode(self._below, made)
                (self._layer / made).mkdir()
                (self._layer / made).chmod(mode)
        return place.path

    def copy(self, step: Copy, workdir: str, context: Mapping[str, FileEntry]) -> None:
        target = posixpath.join(workdir, step.target)
        found = [path for source in step.sources for path in _found(source, context)]
        into = len(found) + len(step.inline) > 1 or step.target.endswith(("/", "/.")) or step.target == "."
        for name, text in step.inline:
            self._one(target, name, FileEntry(text.encode()), step.mode, into=into)
        for path in found:
            if path in context:
                if step.unpacks and _is_archive(context[path].content):
                    raise NeedsDockerError(f"ADD {path!r} would unpack an archive, which needs the docker backend")
                self._one(target, posixpath.basename(path), context[path], step.mode, into=into)
                continue
            self.directory(target)
            for name in _below(path, context):
                below = name[len(path) + 1 :] if path else name
                self._file(posixpath.join(target, below), context[name], step.mode)

    def finish(self) -> None:
        for folder, _, _ in os.walk(self._layer):
            os.utime(folder, (SOURCE_TIME_S, SOURCE_TIME_S))

    def _one(self, target: str, name: str, entry: FileEntry, mode: int | None, *, into: bool) -> None:
        into = into or locate(self._layers, target).kind == "directory"
        self._file(posixpath.join(target, name) if into else target, entry, mode)

    def _file(self, target: str, entry: FileEntry, mode: int | None) -> None:
        folder = self.directory(posixpath.dirname(target))
        name = posixpath.basename(target)
        if not name:
            raise LayerError(f"{target!r} names no file")
        if locate(self._layers, f"{folder}/{name}").kind == "directory":
            raise LayerError(f"{target!r} is a directory")
        path = self._layer / folder / name
        path.unlink(missing_ok=True)
        path.write_bytes(entry.content)
        path.chmod(mode if mode is not None else 0o755 if entry.executable else 0o644)
        os.utime(path, (SOURCE_TIME_S, SOURCE_TIME_S))

    def _check_shown(self, path: str) -> None:
        for bind in self._host_binds:
            if Path("/" + path).is_relative_to(bind):
                raise LayerError(f'/{path}: {bind} is the host\'s and read-only with base = "host"; use a built base')
