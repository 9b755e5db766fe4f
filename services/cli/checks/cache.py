"""What checks leave for the next one: built layers, the host's base, verdicts. Bounded; the least recently used goes.

One folder a user. Processes that check hold its lock together; it is cleaned only by one that holds it alone, so a
layer never goes while a sandbox stands on it.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from services.kernel.harbor.layers import LayerCache
from services.kernel.sandbox.layers import remove_tree

BYTES_MAX = 4 * 2**30
VERDICTS_MAX = 200_000
TRIM_EVERY_S = 600.0
"""Counting what is there takes a while: it is done no more often."""
STALE_S = 30 * 86_400.0
HOLDS = "holds-"
"""Marks that say of one boot and one version of our code that this machine holds what a sandbox must hold."""
VARIABLE = "ENVWHEEL_CACHE"
SHOPS = ("layers", "unpacked")
"""Layer caches below the workshop's folder."""


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """What the cache holds now."""

    folder: str
    layers: int
    layer_bytes: int
    verdicts: int
    bytes_max: int = BYTES_MAX


@dataclass(frozen=True)
class CheckCache:
    root: Path
    bytes_max: int = BYTES_MAX
    trim_every_s: float = TRIM_EVERY_S

    @property
    def workshop(self) -> Path:
        """Layers, bases and sandboxes. Sandboxes that a killed process left go when the next one is opened."""
        return self.root / "workshop"

    @property
    def verdicts(self) -> Path:
        return self.root / "verdicts"

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Holds the folder together with others; whoever has it alone at the end brings it below its bounds."""
        self.root.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
            yield
        finally:
            if _alone(handle):
                self._trim()
            os.close(handle)

    def clear(self) -> bool:
        """Removes all that nobody needs now; False where a check is running."""
        self.root.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _alone(handle):
                return False
            for folder in (self.workshop, self.verdicts):
                remove_tree(folder)
            return True
        finally:
            os.close(handle)

    def use(self) -> Use:
        shops = [LayerCache(self.workshop / name) for name in SHOPS]
        sizes = [size for shop in shops for size in shop.sizes().values()]
        return Use(
            folder=str(self.root), layers=len(sizes), layer_bytes=sum(sizes), verdicts=len(self._verdict_files())
        )

    def _trim(self) -> None:
        mark = self.root / "trimmed"
        if mark.exists() and time.time() - mark.stat().st_mtime < self.trim_every_s:
            return
        for name in SHOPS:
            LayerCache(self.workshop / name).trim(self.bytes_max // len(SHOPS))
        oldest = sorted(self._verdict_files(), key=lambda path: path.stat().st_mtime_ns)
        for path in oldest[: max(0, len(oldest) - VERDICTS_MAX)]:
            path.unlink()
        for stale in self.workshop.glob(f"{HOLDS}*"):
            if time.time() - stale.stat().st_mtime > STALE_S:
                stale.unlink()
        mark.touch()

    def _verdict_files(self) -> list[Path]:
        return list(self.verdicts.glob("??/*.json"))


def open_cache(folder: Path | None = None) -> CheckCache:
    """The folder given, or that of $ENVWHEEL_CACHE, or the user's own for caches."""
    if folder is None:
        named = os.environ.get(VARIABLE)
        folder = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "envwheel"
    return CheckCache(folder.absolute())


def _alone(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
