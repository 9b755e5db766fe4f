"""The Docker backend: one container a sandbox, PID 1 inside is our supervisor, run by an interpreter of ours.

Passes the contract suite of all backends. Beyond it:
- the engine must see our work folder at the same path, since it is shown in containers from there;
- users are real: a program that runs as 1000 may write where the image lets 1000 write;
- memory of the tree is held twice: by the supervisor's looks, as everywhere, and by the kernel at 128 MiB more;
- one process too many is refused by the kernel;
- only root of the engine's machine counts the disk use of empty files; others ask the engine, which counts bytes;
- with `runtime = "runsc"` programs run on gVisor's kernel and not on the host's.

Not covered: what a container engine does not pin (uptime, load, CPU model, kernel version, mount options in /proc);
extended attributes of files in snapshots; volumes that an image declares count to no disk limit.
"""

import asyncio
import os
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from services.kernel.sandbox.docker.container import Container, Kind, kind_of, launch, specification
from services.kernel.sandbox.docker.engine import Engine
from services.kernel.sandbox.docker.images import described_image, exported_files, look_inside
from services.kernel.sandbox.docker.options import KIND_LABEL, LABEL, OWNER_LABEL, PROCESS_LABEL, DockerOptions
from services.kernel.sandbox.docker.reaper import reap, this_process
from services.kernel.sandbox.docker.runtime import assemble
from services.kernel.sandbox.docker.sandbox import DockerSandbox
from services.kernel.sandbox.docker.warm import WarmPool
from services.kernel.sandbox.launch import fixed_environment, uid_of
from services.kernel.sandbox.layers import SYSTEM_PATHS, remove_tree
from services.kernel.sandbox.owner import claim_folder
from services.kernel.sandbox.protocol import (
    Image,
    ImageFile,
    Limits,
    Mount,
    Pins,
    SandboxError,
    SandboxRefusedError,
    SelfCheck,
    SnapshotId,
)
from services.kernel.sandbox.self_check import run_probes
from services.kernel.sandbox.session import check_limits

HOW = {
    "network": "no network is set up for a container; it has its loopback alone",
    "memory": "RLIMIT_DATA for a process; the supervisor counts the tree every 0.1 s and ends it; the container's "
    "cgroup holds 128 MiB more",
    "pids": "the container's pids cgroup",
    "isolation": "the engine's namespaces and seccomp profile, few capabilities, a system-call filter of ours, "
    "no-new-privileges, an undumpable supervisor",
    "user": "the supervisor is root, and takes the user's uid and gid for each command",
}
RUNTIME = "runtime"
LISTINGS_MAX = 64
"""Of images whose snapshots were started from, some hundred KB each at most."""
CLEANING_MAX = 8
"""How many containers may be on their way out when another one is started."""


class DockerBackend:
    """Sandboxes in containers; `work_dir` must be seen by the engine at the same path. Use it from one event loop."""

    def __init__(self, work_dir: Path, options: DockerOptions | None = None) -> None:
        self.options = options or DockerOptions()
        self._work_dir = work_dir.absolute()
        self._opening: asyncio.Task[tuple[Engine, Path, int]] | None = None
        self._closed = False
        self._serial = 0
        self._open: set[DockerSandbox] = set()
        self._saved: dict[SnapshotId, tuple[Container, int]] = {}
        self._images: dict[str, Image] = {}
        self._listings: dict[tuple[str, tuple[str, ...]], bytes] = {}
        self.warm = WarmPool(self.options.warm_max, self._new_container)
        self._cleaning: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(
        self,
        image: Image,
        *,
        pins: Pins | None = None,
        limits: Limits | None = None,
        mounts: tuple[Mount, ...] = (),
        snapshot: SnapshotId | None = None,
        trusted_system: bool = False,
    ) -> DockerSandbox:
        """See `SandboxBackend.start`. Without `pins` the user is the image's. A start from a snapshot is one from the
        image, made to look like the snapshot.

        Raises:
            SandboxRefusedError: limits out of bounds, an unknown snapshot, user or image, a mount that is not there.
            SandboxError: the engine or the container failed; the text says how.
        """
        pins = pins or Pins(user_uid=uid_of(image, image.user))
        limits = check_limits(limits or Limits())
        env = fixed_environment(image, pins, trusted_system=trusted_system)
        saved = self._find(snapshot) if snapshot is not None else None
        kind = kind_of(image, pins, limits, mounts)
        while len(self._cleaning) > CLEANING_MAX:
            await asyncio.wait(self._cleaning, return_when=asyncio.FIRST_COMPLETED)
        container = self.warm.take(kind) or await self._new_container(kind)
        sandbox = DockerSandbox(container, image, pins, env, limits, self._dispose_of, self._save)
        self._open.add(sandbox)
        if saved:
            try:
                await self._pour(*saved, container, SYSTEM_PATHS if trusted_system else ())
            except BaseException:
                await sandbox.close()
                raise
        self.warm.asked_for(kind)
        return sandbox

    async def _pour(self, source: Container, bytes_max: int, fresh: Container, patterns: tuple[str, ...]) -> None:
        key = fresh.kind.image, patterns
        known = self._listings.pop(key, None)
        self._listings[key] = await source.pour_into(fresh, patterns, bytes_max, known)
        if len(self._listings) > LISTINGS_MAX:
            self._listings.pop(next(iter(self._listings)))

    async def settle(self) -> None:
        """Until no container is on its way in or out."""
        await self.warm.settle()
        while self._cleaning:
            await asyncio.wait(self._cleaning)

    async def image_of(self, reference: str) -> Image:
        """The image of that name or id in the engine, with what its own files and configuration say of it. One of a
        name that moved is another.

        Raises:
            SandboxRefusedError: it is not there. SandboxError: nothing starts from it.
        """
        engine, _ = await self._ready()
        found = await asyncio.to_thread(engine.inspect_image, reference)
        if found["Id"] not in self._images:
            plain = described_image(found)
            sandbox = await self.start(plain, pins=Pins(), limits=Limits())
            try:
                self._images[found["Id"]] = await look_inside(plain, sandbox)
            finally:
                await sandbox.close()
        return self._images[found["Id"]]

    def image_files(self, image: Image) -> Iterator[ImageFile]:
        """See `SandboxBackend.image_files`. A file with several names may come under one of them only, and
        the files that the engine replaces in a container (/etc/hosts and the like) do not come.
        """
        kind = kind_of(image, Pins(), Limits(), ())
        engine = Engine(self.options.host)
        try:
            container = engine.create("", {"Image": kind.image, "Cmd": ["/"], "Labels": self._labels("image files")})
            try:
                yield from exported_files(engine.export(container))
            finally:
                engine.remove(container)
        finally:
            engine.close()

    def _find(self, snapshot: SnapshotId) -> tuple[Container, int]:
        try:
            return self._saved[snapshot]
        except KeyError:
            raise SandboxRefusedError(f"no snapshot {snapshot!r} in this backend") from None

    def _save(self, sandbox: DockerSandbox) -> SnapshotId:
        self._open.discard(sandbox)
        self._serial += 1
        snapshot = SnapshotId(f"snapshot-{self._serial}")
        self._saved[snapshot] = sandbox.container, sandbox.disk_bytes_max
        return snapshot

    async def drop(self, snapshot: SnapshotId) -> None:
        saved = self._saved.pop(snapshot, None)
        if saved is not None:
            self._clean(saved[0].remove())

    def _dispose_of(self, sandbox: DockerSandbox) -> None:
        self._open.discard(sandbox)
        self._clean(sandbox.container.remove())

    async def _ready(self) -> tuple[Engine, Path]:
        if self._closed:
            raise SandboxError("the sandbox backend is closed")
        if self._opening is None:
            self._opening = asyncio.create_task(asyncio.to_thread(self._open_engine))
        engine, folder, _ = await asyncio.shield(self._opening)
        return engine, folder

    def _open_engine(self) -> tuple[Engine, Path, int]:
        """A connection, a folder of our own with the runtime; what dead owners left is removed."""
        engine = Engine(self.options.host)
        try:
            reap(engine)
            folder, lock_fd = claim_folder(self._work_dir)
            try:
                assemble(folder / RUNTIME)
            except BaseException:
                remove_tree(folder)
                os.close(lock_fd)
                raise
        except BaseException:
            engine.close()
            raise
        return engine, folder, lock_fd

    def _labels(self, kind: str, folder: Path | None = None) -> dict[str, str]:
        own = {LABEL: "1", KIND_LABEL: kind, PROCESS_LABEL: this_process()}
        return {**dict(self.options.labels), **own, **({OWNER_LABEL: os.fspath(folder)} if folder else {})}

    async def _new_container(self, kind: Kind) -> Container:
        """Started and prepared. When cancelled, it is made all the same, and removed."""
        making = asyncio.create_task(self._make_container(kind))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            self._clean(_discard(making))
            raise

    async def _make_container(self, kind: Kind) -> Container:
        engine, folder = await self._ready()
        self._serial += 1
        name = f"envwheel-{folder.name}-{self._serial}"
        labels = self._labels("sandbox", folder)
        spec = specification(kind, folder / RUNTIME, labels, self.options)
        container = await asyncio.to_thread(launch, engine, name, spec, kind)
        try:
            await container.prepare()
        except BaseException:
            await container.remove()
            raise
        return container

    def _clean(self, work: Coroutine[Any, Any, None]) -> None:
        """Beside what goes on. What the engine could not do is tried again at the end."""

        async def done() -> None:
            with suppress(SandboxError):
                await work

        task = asyncio.create_task(done())
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)

    async def self_check(self) -> SelfCheck:
        """Try every limit on `options.probe_image`; takes some seconds.

        Raises:
            SandboxError: the engine is not reached, the image is not there, or nothing starts from it.
        """
        image = await self.image_of(self.options.probe_image)
        return SelfCheck("docker", await run_probes(self, image, HOW))

    async def close(self) -> None:
        self._closed = True
        await self.warm.close()
        async with asyncio.TaskGroup() as group:
            for sandbox in list(self._open):
                group.create_task(sandbox.close())
            for snapshot in list(self._saved):
                group.create_task(self.drop(snapshot))
        await self.settle()
        opening, self._opening = self._opening, None
        if opening is not None and not (await asyncio.wait({opening}))[0].pop().exception():
            await asyncio.to_thread(_give_up, *opening.result())


async def _discard(making: asyncio.Task[Container]) -> None:
    await (await making).remove()


def _give_up(engine: Engine, folder: Path, lock_fd: int) -> None:
    try:
        for container in engine.containers(f"{OWNER_LABEL}={folder}"):
            engine.remove(container["Id"])
    finally:
        remove_tree(folder)
        engine.close()
        os.close(lock_fd)
