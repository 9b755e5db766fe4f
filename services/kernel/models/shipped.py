"""Checkpoints that come with the code, and how they were built."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from services.kernel.models.config import ModelError

if TYPE_CHECKING:
    from services.kernel.models.checkpoint import Checkpoint

ROOT = Path(__file__).parent
BUILT = "built.json"


class Built(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where a build's bytes follow from: the same recipe on the same of each gives the same digest."""

    digest: str
    torch: str
    cpu_capability: str
    """As torch names it: DEFAULT, AVX2, AVX512."""
    threads: int
    demonstrations: str
    """sha256 over the first demonstrations drawn: changes with recipe, skills and lexicon."""


def read_built(folder: Path) -> Built:
    """Raises ModelError where the folder has no readable `built.json`."""
    try:
        return msgspec.json.decode((folder / BUILT).read_bytes(), type=Built)
    except (OSError, msgspec.DecodeError) as error:
        raise ModelError(f"{folder / BUILT}: {error}") from error


def shipped(name: str) -> "Checkpoint":
    """The checkpoint of that name, its digest checked. Raises ModelError."""
    from services.kernel.models.checkpoint import Checkpoint  # torch, which not every caller of this module needs

    folder = ROOT / name
    if not name.isidentifier() or not (folder / BUILT).is_file():
        raise ModelError(f"no model named {name!r} is shipped; shipped are {', '.join(shipped_names())}")
    checkpoint, built = Checkpoint.from_dir(folder), read_built(folder)
    if checkpoint.digest != built.digest:
        raise ModelError(
            f"the shipped {name} has digest {checkpoint.digest}, {BUILT} says {built.digest}: install again"
        )
    return checkpoint


def shipped_names() -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in ROOT.glob(f"*/{BUILT}")))
