"""A workshop over the host's own base, without the self-check of a service's start; and environments for it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from services.kernel.archive import FileEntry, digest, pack
from services.kernel.harbor.build import LayerBuilder
from services.kernel.harbor.grade import Grader
from services.kernel.sandbox.base import host_base
from services.kernel.sandbox.bubblewrap import BubblewrapBackend
from services.kernel.skills.compose import compose
from services.kernel.skills.harbor_files import harbor_files
from services.kernel.skills.lexicon import Names
from services.kernel.workshop import Workshop
from services.validator.gates.gate import Case

Files = Mapping[str, FileEntry]


@asynccontextmanager
async def open_shop(folder: Path) -> AsyncIterator[Workshop]:
    base = host_base(folder / "base")
    backend = BubblewrapBackend(folder / "sandboxes")
    image = base.image()
    builder = LayerBuilder(backend, folder / "layers", image)
    shop = Workshop(base, image, backend, builder, Grader(backend, builder, folder / "unpacked"))
    try:
        yield shop
    finally:
        await shop.close()


def composed(*skills: str, seed: int = 1) -> dict[str, FileEntry]:
    """Files of a Harbor task as the built-in proposer writes them."""
    rng = Random(seed)
    written = harbor_files(compose(rng, skills, Names(rng), distractors=1))
    return {path: FileEntry(spec.content, spec.mode == 0o755) for path, spec in written.items()}


def case_of(shop: Workshop, files: Files | bytes, **more: object) -> Case:
    archive = files if isinstance(files, bytes) else pack(files)
    return Case(digest(archive), archive, shop, **more)  # type: ignore[arg-type] # by name: the tests' own choice
