"""A workshop over the host's own base, without the self-check of a service's start; and environments for it."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from services.kernel.archive import FileEntry, digest, pack
from services.kernel.harbor.build import LayerBuilder
from services.kernel.harbor.docker_builder import DockerBuilder
from services.kernel.harbor.grade import Grader
from services.kernel.harbor.recipe import BASE_NAMES
from services.kernel.sandbox.base import Base, host_base, load_base
from services.kernel.sandbox.bubblewrap import BubblewrapBackend
from services.kernel.sandbox.docker.backend import DockerBackend
from services.kernel.sandbox.docker.options import DockerOptions
from services.kernel.skills.compose import compose
from services.kernel.skills.harbor_files import harbor_files
from services.kernel.skills.lexicon import Names
from services.kernel.workshop import Workshop
from services.validator.gates.gate import Case
from tests.support.engine import engine_host

Files = Mapping[str, FileEntry]


@asynccontextmanager
async def open_shop(folder: Path, backend_name: str = "bubblewrap") -> AsyncIterator[Workshop]:
    """ENVWHEEL_TEST_BASE names a built base to use instead. With "docker" the base is the engine's; without an engine
    the test is skipped.
    """
    built = os.environ.get("ENVWHEEL_TEST_BASE")
    base = load_base(Path(built)) if built else host_base(folder / "base")
    shop = await _with_engine(base, folder) if backend_name == "docker" else _with_layers(base, folder)
    try:
        yield shop
    finally:
        await shop.close()


def _with_layers(base: Base, folder: Path) -> Workshop:
    backend, image = BubblewrapBackend(folder / "sandboxes"), base.image()
    builder = LayerBuilder(backend, folder / "layers", image)
    return Workshop(base, image, backend, builder, Grader(backend, builder, folder / "unpacked"))


async def _with_engine(base: Base, folder: Path) -> Workshop:
    backend = DockerBackend(folder / "sandboxes", DockerOptions(host=engine_host(), warm_max=0))
    builder = DockerBuilder(backend, None, BASE_NAMES)
    image = await builder.base_image()
    return Workshop(base, image, backend, builder, Grader(backend, builder, folder / "unpacked"))


def composed(*skills: str, seed: int = 1) -> dict[str, FileEntry]:
    """Files of a Harbor task as the built-in proposer writes them."""
    rng = Random(seed)
    written = harbor_files(compose(rng, skills, Names(rng), distractors=1))
    return {path: FileEntry(spec.content, spec.mode == 0o755) for path, spec in written.items()}


def case_of(shop: Workshop, files: Files | bytes, **more: object) -> Case:
    archive = files if isinstance(files, bytes) else pack(files)
    return Case(digest(archive), archive, shop, **more)  # type: ignore[arg-type] # by name: the tests' own choice
