"""Builds a task's image in a Docker engine, with the engine's own builder.

No network unless allowed; every image that a Dockerfile rests on must be in the engine beforehand, unless pulling is
allowed. An image is tagged by the digest of all that it is made from, and found again by that. Memory and wall time of
a build are bounded; processes and disk are bounded only by the engine's own settings.
"""

import asyncio
import json
import posixpath
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from services.kernel.archive import digest
from services.kernel.harbor.classic import Member, Translated, translate
from services.kernel.harbor.dockerfile import Copy, DockerfileError, Run, Workdir, parse
from services.kernel.harbor.patterns import PatternError, without_ignored
from services.kernel.harbor.recipe import (
    WANTS_NETWORK,
    BuildFailedError,
    NetworkWantedError,
    Recipe,
    UnavailableError,
    recipe_of,
)
from services.kernel.harbor.support import resolve_env
from services.kernel.harbor.task import HarborTask
from services.kernel.sandbox.base import Base
from services.kernel.sandbox.docker.build import BuildError, EngineBuild, engine_build, import_base, path_kind, pull
from services.kernel.sandbox.docker.engine import Engine
from services.kernel.sandbox.docker.images import described_image
from services.kernel.sandbox.docker.options import KIND_LABEL, LABEL, DockerOptions
from services.kernel.sandbox.protocol import Image, SandboxBackend, SandboxError, SandboxRefusedError

REPOSITORY = "envwheel/task"
WALL_FACTOR = 3.0
"""A build may take that many times its `build_timeout_sec` of wall time: the machine may be busy."""
SYSTEM_FOLDERS = ("", "bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr")
MEMORY_BYTES_MIN = 2 * 2**30
"""What a build gets at least: compilers need more than what they make."""


_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
"""The classic builder paints what a step says on standard error."""
_EXIT_CODE = re.compile(r"The command '.*' returned a non-zero code: (\d+)", re.DOTALL)


class EngineBackend(SandboxBackend, Protocol):
    """A backend whose images are those of a container engine."""

    options: DockerOptions

    async def image_of(self, reference: str) -> Image:
        """The image of that name. Raises SandboxRefusedError where it is not in the engine."""
        ...


@dataclass(frozen=True)
class _Source:
    """What an image is built from, fully said."""

    translated: Translated
    grounds: tuple[tuple[str, str], ...]
    """Names of the images below, and what tells their content."""


class DockerBuilder:
    """See `ImageBuilder`. `base`, a built one, is imported into the engine when FROM first names it by one of
    `base_names`; without one, what the engine has under that name counts.
    """

    def __init__(self, backend: EngineBackend, base: Base | None, base_names: Collection[str]) -> None:
        self._backend, self._base, self._names = backend, base, tuple(base_names)
        self._network, self._pull = backend.options.build_network, backend.options.pull
        self._engine: Engine | None = None
        self._lock = asyncio.Lock()

    async def base_image(self) -> Image:
        """The base alone. Raises as `build`."""
        if self._base is None:
            await self._need(self._names[0])
            return await self._backend.image_of(self._names[0])
        image = await self._backend.image_of(await self._imported(self._base))
        return replace(image, digest=self._base.digest)

    async def build(self, task: HarborTask, *, verifier: bool = False) -> Image:
        """See `ImageBuilder`."""
        recipe = recipe_of(task, verifier=verifier)
        prebuilt = recipe.environment.docker_image
        has_dockerfile = "Dockerfile" in recipe.context
        if prebuilt and has_dockerfile and await self._there(prebuilt):
            # As Harbor: what is prebuilt goes first.
            return await self._configure(await self._from(prebuilt), recipe)
        if prebuilt and not recipe.context:
            await self._need(prebuilt)
            return await self._configure(await self._from(prebuilt), recipe)
        # One build at a time: equal ones then find what the first has made.
        async with self._lock:
            return await self._configure(await self._built(recipe), recipe)

    async def close(self) -> None:
        if self._engine is not None:
            await asyncio.to_thread(self._engine.close)

    async def _from(self, reference: str) -> Image:
        image = await self._backend.image_of(reference)
        return replace(image, digest=self._base.digest) if self._base and reference in self._names else image

    async def _built(self, recipe: Recipe) -> Image:
        source = await self._source(recipe)
        said = [sorted(source.grounds), source.translated.text, _digest(source.translated.members), self._network]
        name = digest(msgspec.json.encode(said))
        reference = f"{REPOSITORY}:{name[:40]}"
        if not await self._there(reference):
            build = EngineBuild(
                context={path: (member.content, member.mode) for path, member in source.translated.members.items()},
                tag=reference,
                labels={**dict(self._backend.options.labels), LABEL: "1", KIND_LABEL: "image"},
                memory_bytes_max=max(recipe.limits.memory_bytes_max, MEMORY_BYTES_MIN),
                wall_s=recipe.limits.cpu_s * WALL_FACTOR,
                network=self._network,
            )
            try:
                await engine_build(await self._connect(), build)
            except BuildError as error:
                raise self._failure(error) from error
        return replace(await self._described(reference, source.translated), digest=name)

    async def _source(self, recipe: Recipe) -> _Source:
        context = dict(recipe.context)
        if "Dockerfile" not in context:
            # Harbor uploads the loose files of environment/ into the working directory of a prebuilt image.
            target = json.dumps([".", (recipe.environment.workdir or ".") + "/"])
            text = f"FROM {recipe.environment.docker_image}\nCOPY {target}\n"
        else:
            try:
                text = context["Dockerfile"].content.decode("utf-8")
                context = without_ignored(context)
            except UnicodeDecodeError as error:
                raise DockerfileError(f"the Dockerfile is not UTF-8: {error}") from error
            except PatternError as error:
                raise DockerfileError(str(error)) from error
        base = await self._base_reference(text)
        translated = translate(text, context, dict.fromkeys(self._names, base) if base else {})
        if not translated.images and "FROM scratch" not in translated.text:
            raise DockerfileError("the Dockerfile has no FROM")
        grounds = [(image, await self._ground(image, base)) for image in translated.images]
        return _Source(translated, tuple(grounds))

    async def _base_reference(self, text: str) -> str | None:
        """The name of our base in the engine, where the Dockerfile speaks of it."""
        if self._base is None or not any(name in text for name in self._names):
            return None
        return await self._imported(self._base)

    async def _ground(self, reference: str, base: str | None) -> str:
        """What tells the content of an image that others rest on."""
        if self._base is not None and reference == base:
            return self._base.digest
        await self._need(reference)
        return (await self._backend.image_of(reference)).digest

    async def _imported(self, base: Base) -> str:
        reference = base_reference(base)
        if not await self._there(reference):
            await asyncio.to_thread(import_base, await self._connect(), base.root, reference, base.digest)
        return reference

    async def _need(self, reference: str) -> None:
        if await self._there(reference):
            return
        if reference in self._names:
            raise UnavailableError(f"{reference!r} is a base: make one with `envwheel base build` and name its folder")
        if not self._pull:
            raise UnavailableError(f"image {reference!r} is not in the Docker engine: `docker pull {reference}`")
        engine = await self._connect()
        try:
            await asyncio.to_thread(pull, engine, reference)
        except SandboxRefusedError as error:
            raise UnavailableError(str(error)) from error

    async def _there(self, reference: str) -> bool:
        engine = await self._connect()
        try:
            await asyncio.to_thread(engine.inspect_image, reference)
        except SandboxRefusedError:
            return False
        return True

    async def _connect(self) -> Engine:
        if self._engine is None:
            self._engine = await asyncio.to_thread(Engine, self._backend.options.host)
        return self._engine

    async def _started(self, reference: str) -> Image:
        """The image, which a sandbox has been started from: a build may have taken away what every one needs.

        Raises: BuildFailedError; SandboxError where the machine is at fault.
        """
        try:
            return await self._backend.image_of(reference)
        except SandboxRefusedError:
            raise
        except SandboxError as error:
            await self._backend.image_of(self._backend.options.probe_image)
            raise BuildFailedError("build", f"no sandbox starts from what it leaves: {error}") from error

    async def _described(self, reference: str, made: Translated) -> Image:
        """The image. Where it plainly has the system of our base, no sandbox is started to look at it."""
        bases = (*self._names, *([base_reference(self._base)] if self._base else []))
        if len(made.images) != 1 or made.images[0] not in bases:
            return await self._started(reference)
        base = await self._backend.image_of(made.images[0])
        if not _leaves_system(made.text, base.workdir):
            return await self._started(reference)
        found = await asyncio.to_thread((await self._connect()).inspect_image, reference)
        return replace(described_image(found), passwd=base.passwd, faketime=base.faketime)

    def _failure(self, error: BuildError) -> Exception:
        reason = _EXIT_CODE.sub(r"exit code \1", str(error))
        if "BuildKit" in reason or "buildkit" in reason:
            return UnavailableError(f"{error.step}: {reason}")
        if error.is_syntax:
            return DockerfileError(reason)
        wants = not self._network and re.match(r"RUN\b", error.step) and WANTS_NETWORK.search(error.step)
        return (NetworkWantedError if wants else BuildFailedError)(
            error.step[:200] or "build", reason, _COLOUR.sub(b"", error.output)
        )

    async def _configure(self, image: Image, recipe: Recipe) -> Image:
        """The image with what task.toml overrides."""
        environment = recipe.environment
        try:
            env = resolve_env(environment.env)
        except KeyError as error:
            raise BuildFailedError("environment.env", f"{error.args[0]} would come from the host") from error
        workdir = environment.workdir or image.workdir
        if environment.workdir and environment.workdir != image.workdir:
            kind = await asyncio.to_thread(path_kind, await self._connect(), str(image.engine_id), environment.workdir)
            if kind != "folder":
                raise BuildFailedError(
                    "environment.workdir", f"{workdir} is not a directory of the image; add WORKDIR {workdir}"
                )
        said = msgspec.json.encode([image.digest, workdir, sorted(env.items())])
        return replace(image, digest=digest(said), workdir=workdir, env=tuple({**dict(image.env), **env}.items()))


def _leaves_system(text: str, workdir: str) -> bool:
    """Whether it is plain that a Dockerfile runs nothing and copies nothing to where a sandbox's programs and the
    image's users come from. `workdir`: of the image below.
    """
    try:
        steps = parse(text)
    except DockerfileError:
        return False
    for step in steps:
        if isinstance(step, Run):
            return False
        if isinstance(step, Workdir):
            workdir = posixpath.join(workdir, step.path)
        if isinstance(step, Copy):
            target = posixpath.normpath("/" + posixpath.join(workdir, step.target)).lstrip("/")
            if target.partition("/")[0] in SYSTEM_FOLDERS:
                return False
    return True


def base_reference(base: Base) -> str:
    """What a built base is called in an engine."""
    return f"envwheel/base:{base.digest[:32]}"


def _digest(members: Mapping[str, Member]) -> str:
    """Of a build context, modes included."""
    return digest(
        msgspec.json.encode([[path, each.mode, digest(each.content)] for path, each in sorted(members.items())])
    )
