"""The workshop of a check: base, backend and builder as the command names them, over the user's cache."""

import argparse
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from schemas.identity import digest_of
from services.cli.checks.cache import HOLDS, CheckCache
from services.cli.code_version import code_version
from services.kernel.workshop import Workshop, open_workshop

BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Shop:
    workshop: Workshop
    basis: Mapping[str, object]
    """What verdicts of this workshop rest on."""


@asynccontextmanager
async def open_shop(arguments: argparse.Namespace, cache: CheckCache) -> AsyncIterator[Shop]:
    """Raises: SandboxError, KernelError, OSError where this machine cannot hold it."""
    code = code_version()
    with cache.in_use():
        cache.workshop.mkdir(parents=True, exist_ok=True)
        # What a machine holds changes with its kernel's settings, at the latest at the next boot.
        holds = cache.workshop / f"{HOLDS}{digest_of(f'{_boot()} {os.getuid()} {code}'.encode())[:16]}"
        workshop = await open_workshop(arguments.base, cache.workshop, base_names=arguments.assume_base, holds=holds)
        basis = {
            "code": code,
            "base": workshop.base.digest,
            "assume_base": sorted(arguments.assume_base),
        }
        try:
            yield Shop(workshop, basis)
        finally:
            await workshop.close()


def _boot() -> str:
    try:
        return BOOT.read_text().strip()
    except OSError:
        return "unknown"
