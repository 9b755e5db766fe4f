"""Where tasks are built, run and graded on this machine: a sandbox backend with a builder and a grader over it."""

import asyncio
import hashlib
import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from services.kernel.errors import KernelError
from services.kernel.harbor.build import LayerBuilder
from services.kernel.harbor.grade import Grader
from services.kernel.harbor.recipe import BASE_NAMES, ImageBuilder
from services.kernel.options import SandboxKind as SandboxKind
from services.kernel.options import ServiceOptions
from services.kernel.sandbox.base import Base, host_base, load_base
from services.kernel.sandbox.bubblewrap import BubblewrapBackend
from services.kernel.sandbox.docker.options import DockerOptions
from services.kernel.sandbox.protocol import Image, LimitCheck, SandboxBackend

NEEDED = frozenset({"network", "memory", "pids", "cpu", "output", "kill", "isolation"})
"""Properties without which no service starts."""


class WorkshopError(KernelError):
    """This machine cannot hold what a sandbox must hold; says what to do."""

    boundary = "sandbox"


@dataclass
class Workshop:
    base: Base
    base_image: Image
    """The base as this backend starts from it."""
    backend: SandboxBackend
    builder: ImageBuilder
    grader: Grader

    async def close(self) -> None:
        await self.builder.close()
        await self.backend.close()


def choose_base(base: str, work: Path) -> Base:
    """`host`, or a folder that `envwheel base build` made.

    Root inside a sandbox can change only what belongs to the user who runs it: a built base of another user is copied
    below `work`, once.
    """
    work.mkdir(parents=True, exist_ok=True)
    if base == "host":
        return host_base(work)
    folder = Path(base)
    if folder.stat().st_uid == os.getuid():
        return load_base(folder)
    own = work / f"base-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}"
    if not own.is_dir():
        making = own.with_suffix(".new")
        shutil.rmtree(making, ignore_errors=True)
        shutil.copytree(folder, making, symlinks=True)
        making.rename(own)
    return load_base(own)


async def open_workshop(
    base: str,
    work: Path,
    *,
    sandbox: SandboxKind = "bubblewrap",
    docker: DockerOptions | None = None,
    base_digest: str | None = None,
    base_names: Collection[str] = (),
    holds: Path | None = None,
) -> Workshop:
    """Build it below `work`, which processes of one user may share.

    `docker`: how the backend of that name is set up. `base_names`: what else FROM may say for the base, such as
    `ubuntu:24.04`; whoever names them vouches that tasks made for those images work on it. `holds`: a mark that this
    machine was found to hold what it must; where it is missing that is tried (2 s), and the mark is made. Its name says
    for how long it is true.

    Raises:
        WorkshopError: the base is another than the run's, or a needed limit does not hold here.
        SandboxError: no container engine, or no image of the base in it.
    """
    chosen = await asyncio.to_thread(choose_base, base, work)
    if base_digest is not None and chosen.digest != base_digest:
        raise WorkshopError(
            f"the run was started on base {base_digest[:12]}, this machine has {chosen.digest[:12]} ({chosen.kind}): "
            "give the same base with --base, or start a new run"
        )
    if sandbox == "docker" and base_digest is not None and chosen.kind == "host":
        raise WorkshopError("containers cannot show this host's /usr: make a base with `envwheel base build`, name it")
    opened = _with_layers(chosen, work, base_names) if sandbox == "bubblewrap" else None
    workshop = opened or await _with_engine(chosen, work, base_names, docker)
    try:
        if holds is None or not await asyncio.to_thread(holds.exists):
            require((await workshop.backend.self_check()).missing(NEEDED))
        if holds is not None:
            await asyncio.to_thread(holds.touch)
    except BaseException:
        await workshop.close()
        raise
    return workshop


async def workshop_of(options: ServiceOptions, base_digest: str) -> Workshop:
    """A service's own, on the run's base. Raises as `open_workshop`."""
    docker = DockerOptions(
        host=options.docker_host,
        runtime=options.docker_runtime or None,
        build_network=options.docker_build_network,
        pull=options.docker_pull,
        labels=(("envwheel.run", options.run),),
    )
    return await open_workshop(
        options.base, options.work, sandbox=options.sandbox, docker=docker, base_digest=base_digest
    )


def _with_layers(base: Base, work: Path, base_names: Collection[str]) -> Workshop:
    backend, image = BubblewrapBackend(work / "sandboxes"), base.image()
    builder = LayerBuilder(backend, work / "layers", image, (*BASE_NAMES, *base_names))
    return Workshop(base, image, backend, builder, Grader(backend, builder, work / "unpacked"))


async def _with_engine(base: Base, work: Path, base_names: Collection[str], options: DockerOptions | None) -> Workshop:
    """A built base is brought into the engine; else what the engine has under the base's name counts."""
    from services.kernel.harbor.docker_builder import DockerBuilder, base_reference
    from services.kernel.sandbox.docker.backend import DockerBackend

    built = base if base.kind == "built" else None
    options = options or DockerOptions()
    backend = DockerBackend(
        work / "sandboxes", replace(options, probe_image=base_reference(built)) if built else options
    )
    builder = DockerBuilder(backend, built, (*BASE_NAMES, *base_names))
    try:
        image = await builder.base_image()
    except BaseException:
        await builder.close()
        await backend.close()
        raise
    return Workshop(base, image, backend, builder, Grader(backend, builder, work / "unpacked"))


def require(missing: tuple[LimitCheck, ...]) -> None:
    """Raises WorkshopError that says of each missing property what to do."""
    if missing:
        raise WorkshopError("; ".join(f"{check.name} does not hold here: {check.how}" for check in missing))
