"""The workshop of a check: base, backend and builder as the command names them, over the user's cache."""

import argparse
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from schemas.identity import digest_of
from services.cli.checks.cache import HOLDS, CheckCache
from services.cli.code_version import code_version
from services.kernel.sandbox.docker.options import DockerOptions
from services.kernel.workshop import SandboxKind, Workshop, open_workshop

HINT = "try --backend docker, or --assume-base IMAGE where the base is like that image"
BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Shop:
    workshop: Workshop
    basis: Mapping[str, object]
    """What verdicts of this workshop rest on."""
    hint: str
    """What else may help where it lacks an image."""


@asynccontextmanager
async def open_shop(arguments: argparse.Namespace, cache: CheckCache) -> AsyncIterator[Shop]:
    """Raises: SandboxError, KernelError, OSError where this machine cannot hold it."""
    code = code_version()
    backend: SandboxKind = arguments.backend
    docker = DockerOptions(
        host=arguments.docker_host,
        runtime=arguments.docker_runtime,
        pull=arguments.pull,
        build_network=arguments.build_network,
    )
    with cache.in_use():
        cache.workshop.mkdir(parents=True, exist_ok=True)
        # What a machine holds changes with its kernel's settings, at the latest at the next boot.
        told = [_boot(), os.getuid(), code, backend, docker]
        holds = cache.workshop / f"{HOLDS}{digest_of(msgspec.json.encode(told))[:16]}"
        workshop = await open_workshop(
            arguments.base,
            cache.workshop,
            sandbox=backend,
            docker=docker,
            base_names=arguments.assume_base,
            holds=holds,
        )
        basis = {
            "code": code,
            "base": workshop.base_image.digest,
            "assume_base": sorted(arguments.assume_base),
            "backend": backend,
            "docker": docker if backend == "docker" else None,
        }
        try:
            yield Shop(workshop, basis, HINT if backend == "bubblewrap" else "")
        finally:
            await workshop.close()


def _boot() -> str:
    try:
        return BOOT.read_text().strip()
    except OSError:
        return "unknown"
