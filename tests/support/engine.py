"""The Docker engine that tests use, and the base image in it: they are there, or the test is skipped and says why."""

import asyncio
import os
import sys
from functools import lru_cache
from pathlib import Path

import pytest

from services.kernel.sandbox.base import load_base
from services.kernel.sandbox.docker.backend import DockerBackend
from services.kernel.sandbox.docker.build import import_base
from services.kernel.sandbox.docker.engine import Engine
from services.kernel.sandbox.docker.options import DockerOptions
from services.kernel.sandbox.protocol import Image

HOST_VARIABLE = "ENVWHEEL_DOCKER_HOST"
BASE_IMAGE = "envwheel/base:1"


def engine_host() -> str:
    """Skips the test where there is no engine."""
    host = os.environ.get(HOST_VARIABLE)
    if not host:
        pytest.skip(f"{HOST_VARIABLE} names no Docker engine (.ci/run starts one)")
    return host


@lru_cache
def _base_image(host: str, folder: Path) -> Image:
    async def look() -> Image:
        async with DockerBackend(folder, DockerOptions(host=host)) as backend:
            return await backend.image_of(BASE_IMAGE)

    return asyncio.run(look())


def base_image(host: str, folder: Path) -> Image:
    """The image of the built base, looked into once a session; `folder` is for that. Not from a running event loop."""
    return _base_image(host, folder)


def containers_of(host: str, owner_folder: Path) -> list[str]:
    """States of the containers that belong to owners below this work folder."""
    engine = Engine(host)
    try:
        found = engine.containers("envwheel")
        return [c["State"] for c in found if c["Labels"].get("envwheel.owner", "").startswith(f"{owner_folder}/")]
    finally:
        engine.close()


def import_folder(host: str, folder: Path) -> None:
    """A built base becomes the image of the tests."""
    base = load_base(folder)
    engine = Engine(host)
    try:
        import_base(engine, base.root, BASE_IMAGE, base.digest)
    finally:
        engine.close()


if __name__ == "__main__":
    import_folder(os.environ[HOST_VARIABLE], Path(sys.argv[1]))
