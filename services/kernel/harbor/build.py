"""Builds a task's Dockerfile into cached layers over a known base, without a container engine.

Each layer is keyed by the layer below, its instructions and the bytes that they copy. COPY and WORKDIR only need a
directory on the host; RUN lines are run offline in a sandbox whose writable layer is kept. Neighbouring instructions of
one kind share a layer, so that a sandbox has few of them to stack.
"""

import errno
import os
import posixpath
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from services.kernel.archive import FileEntry, digest, pack
from services.kernel.harbor.copying import SOURCE_TIME_S, LayerWriter, files_of
from services.kernel.harbor.dockerfile import (
    Arg,
    Copy,
    DockerfileError,
    Env,
    From,
    Instruction,
    NeedsDockerError,
    Run,
    User,
    Workdir,
    parse,
)
from services.kernel.harbor.layers import TOO_LONG, LayerCache, LayerError, locate
from services.kernel.harbor.patterns import PatternError, without_ignored
from services.kernel.harbor.recipe import (
    BASE_NAMES,
    WANTS_NETWORK,
    BuildFailedError,
    NetworkWantedError,
    Recipe,
    recipe_of,
)
from services.kernel.harbor.support import resolve_env
from services.kernel.harbor.task import HarborTask
from services.kernel.sandbox.launch import PATH
from services.kernel.sandbox.protocol import (
    Ended,
    ExecResult,
    Image,
    Limits,
    SandboxBackend,
    SandboxError,
    SandboxRefusedError,
    SnapshotId,
)

FileStep: TypeAlias = tuple[Copy | Workdir, str]
"""An instruction and the working directory that it starts from."""
RunStep: TypeAlias = tuple[Run, Image]
"""An instruction and the image whose env and working directory it has."""


UNKNOWN_BASE = "base"
"""Begins what is said of a FROM that is none of the base's names."""


class LayerBackend(SandboxBackend, Protocol):
    """A backend that can hand over what a snapshot wrote."""

    async def take_layer(self, snapshot: SnapshotId, target: Path) -> None:
        """Moves the snapshot's writable layer to the missing directory `target`; the snapshot is gone afterwards."""
        ...


@dataclass
class _Plan:
    """Neighbouring instructions of one kind, not built yet."""

    files: list[FileStep] = field(default_factory=list)
    runs: list[RunStep] = field(default_factory=list)


class LayerBuilder:
    """See `ImageBuilder`. `base` is what FROM means by one of `base_names`; one cache folder may serve several builders
    and processes.
    """

    def __init__(
        self, backend: LayerBackend, cache: Path, base: Image, base_names: Collection[str] = BASE_NAMES
    ) -> None:
        self._backend = backend
        self._cache = LayerCache(cache)
        self._base, self._names = base, tuple(base_names)

    async def close(self) -> None:
        """Nothing to do: the backend owns all."""

    async def build(self, task: HarborTask, *, verifier: bool = False) -> Image:
        """See `ImageBuilder`. NeedsDockerError: FROM an unknown base, or an instruction outside the subset."""
        recipe = recipe_of(task, verifier=verifier)
        context, limits = _visible(recipe), recipe.limits
        first, *rest = _instructions(recipe)
        if not isinstance(first, From) or first.image not in self._names:
            known = ", ".join(sorted(self._names))
            raise NeedsDockerError(
                f"{UNKNOWN_BASE} {getattr(first, 'image', '?')!r} needs the docker backend (bubblewrap takes {known})"
            )
        image = self._base
        plan, args = _Plan(), dict[str, str]()
        for step in rest:
            # One sandbox has one user: USER ends a row of RUN lines.
            if (isinstance(step, Run) and plan.files) or (isinstance(step, Copy | Workdir | User) and plan.runs):
                image, plan = await self._flush(image, plan, context, limits), _Plan()
            image = _declare(image, step, context)
            if isinstance(step, Arg):
                args[step.name] = step.value
            elif isinstance(step, Run):
                plan.runs.append((step, replace(image, env=tuple({**args, **dict(image.env)}.items()))))
            elif isinstance(step, Copy | Workdir):
                plan.files.append((step, image.workdir))
        image = await self._flush(image, plan, context, limits)
        return _configure(image, recipe)

    async def _flush(self, image: Image, plan: _Plan, context: Mapping[str, FileEntry], limits: Limits) -> Image:
        if not plan.files and not plan.runs:
            return image
        layer = self._cache.get(image.digest)
        if layer is None:
            layer = await self._run(image, plan.runs, limits) if plan.runs else self._copy(image, plan.files, context)
        return replace(image, lowers=(*image.lowers, layer))

    def _copy(self, image: Image, steps: Sequence[FileStep], context: Mapping[str, FileEntry]) -> Path:
        with self._cache.making() as layer:
            writer = LayerWriter(layer, image)
            for step, workdir in steps:
                try:
                    if isinstance(step, Workdir):
                        writer.directory(workdir)
                    else:
                        writer.copy(step, workdir, context)
                except LayerError as error:
                    raise BuildFailedError(f"{type(step).__name__.upper()} {workdir[:60]}", str(error)) from error
                except OSError as error:
                    if error.errno != errno.ENAMETOOLONG:
                        raise
                    raise BuildFailedError(f"{type(step).__name__.upper()} {workdir[:60]}", TOO_LONG) from error
            writer.finish()
            return self._cache.keep(layer, image.digest)

    async def _run(self, image: Image, steps: Sequence[RunStep], limits: Limits) -> Path:
        # The kernel stamps files with a clock that may lag a few milliseconds.
        started_s = time.time() - 1
        sandbox = await self._backend.start(image, limits=limits)
        try:
            for step, at in steps:
                result = await sandbox.exec(step.argv, cwd=at.workdir, env=dict(at.env), limits=limits)
                _check_run(step, result)
            snapshot = await sandbox.snapshot()
        except BaseException:
            await sandbox.close()
            raise
        with self._cache.making() as room:
            layer = room / "layer"
            await self._backend.take_layer(snapshot, layer)
            _settle_times(layer, started_s)
            await self._check_starts(image, layer, limits)
            return self._cache.keep(layer, image.digest)

    async def _check_starts(self, image: Image, layer: Path, limits: Limits) -> None:
        """A RUN line may have taken away what every sandbox starts with: the task's doing, if the image below starts.

        Raises: BuildFailedError; SandboxError where the machine is at fault.
        """
        try:
            await (await self._backend.start(replace(image, lowers=(*image.lowers, layer)), limits=limits)).close()
        except SandboxRefusedError:
            raise
        except SandboxError as error:
            await (await self._backend.start(image, limits=limits)).close()
            raise BuildFailedError("RUN", f"no sandbox starts from what it leaves: {error}") from error


def _check_run(step: Run, result: ExecResult) -> None:
    line = f"RUN {step.argv[-1] if step.argv[0] == '/bin/sh' else ' '.join(step.argv)}"[:200]
    if result.ended is not Ended.exited:
        raise BuildFailedError(line, f"stopped by its {result.ended}", result.output)
    if result.exit_code != 0:
        failed = NetworkWantedError if WANTS_NETWORK.search(step.argv[-1]) else BuildFailedError
        raise failed(line, f"exit code {result.exit_code}", result.output)


def _visible(recipe: Recipe) -> Mapping[str, FileEntry]:
    try:
        return without_ignored(recipe.context) if "Dockerfile" in recipe.context else recipe.context
    except PatternError as error:
        raise DockerfileError(str(error)) from error


def _instructions(recipe: Recipe) -> Iterator[Instruction]:
    context, environment = recipe.context, recipe.environment
    if "Dockerfile" in context:
        try:
            yield from parse(context["Dockerfile"].content.decode("utf-8"), {"PATH": PATH})
        except UnicodeDecodeError as error:
            raise DockerfileError(f"the Dockerfile is not UTF-8: {error}") from error
        return
    # Harbor uploads the loose files of environment/ into the working directory of a prebuilt image.
    yield From(environment.docker_image or "")
    if context:
        yield Copy(("",), (environment.workdir or ".") + "/")


def _declare(image: Image, step: Instruction, context: Mapping[str, FileEntry]) -> Image:
    """What the step says of the image, and its digest: over the one below, the step, and the bytes that it copies."""
    copied = digest(pack(files_of(step, context))) if isinstance(step, Copy) else ""
    said = msgspec.json.encode([image.digest, type(step).__name__, msgspec.to_builtins(step), image.workdir, copied])
    image = replace(image, digest=digest(said))
    match step:
        case Env(pairs):
            return replace(image, env=tuple(dict([*image.env, *pairs]).items()))
        case User(name):
            return replace(image, user=name)
        case Workdir(path):
            return replace(image, workdir="/" + posixpath.normpath(posixpath.join(image.workdir, path)).lstrip("/"))
        case _:
            return image


def _configure(image: Image, recipe: Recipe) -> Image:
    """The image with what task.toml overrides."""
    environment = recipe.environment
    try:
        env = resolve_env(environment.env)
    except KeyError as error:
        raise BuildFailedError(
            "environment.env", f"{error.args[0]} would come from the host; give a default"
        ) from error
    workdir = environment.workdir or image.workdir
    hidden = any(Path(workdir).is_relative_to(bind) for bind in image.host_binds)
    if environment.workdir and not hidden and not _is_directory(image, workdir):
        raise BuildFailedError(
            "environment.workdir", f"{workdir} is not a directory of the image; add WORKDIR {workdir}"
        )
    said = msgspec.json.encode([image.digest, workdir, sorted(env.items())])
    pairs = tuple({**dict(image.env), **env}.items())
    return replace(image, digest=digest(said), workdir=workdir, env=pairs)


def _is_directory(image: Image, path: str) -> bool:
    try:
        return locate(image.lowers, path).kind == "directory"
    except LayerError:
        return False


def _settle_times(layer: Path, since_s: float) -> None:
    """Gives the constant time to all that has been written since; a time that a RUN line has set by itself stays."""
    until_s = time.time() + 1
    for folder, folders, files in os.walk(layer, topdown=False):
        for name in [*files, *folders, "."]:
            path = Path(folder) / name
            if since_s <= path.lstat().st_mtime <= until_s:
                os.utime(path, (SOURCE_TIME_S, SOURCE_TIME_S), follow_symlinks=False)
