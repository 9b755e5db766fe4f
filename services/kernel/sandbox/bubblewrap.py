"""The bubblewrap backend: one set of namespaces and one overlay for each sandbox, PID 1 inside is our supervisor.

Works as an ordinary user and as root, without a daemon or set-uid program; needs user namespaces and overlayfs in them
(Linux 5.11).

Covered (each has a test):
- no network but its own loopback; no host process, no host file but /usr of a host base, no host environment is seen;
- time, memory, processes, disk and output of the tree are bounded, and when a bound is met the whole tree ends at once;
- commands cannot end, stop, read or trace the supervisor, make namespaces or mounts, or leave the tree by links,
  devices or file names;
- killing the owner leaves no process and no mount; what it left on disk goes when a backend next starts in the same
  work folder;
- a grading sandbox (`trusted_system`) runs the image's programs, whatever an agent put in their place, and has none of
  its links into the tests or to what a verifier has open.

Not covered:
- faults of the kernel itself: use the Docker backend with gVisor for agents that you would not run as your own user;
- a plain start from a snapshot of a built base runs the supervisor with the python3 that the agent left there: start
  what decides anything with `trusted_system`;
- one uid a sandbox: `chown` to another one, `su` and set-uid programs do not work;
- CPU shares and I/O rates; kernel memory (socket buffers, inodes); the limits overshoot by what happens between two
  looks (0.1 s);
- CPU time of processes whose parent ignores SIGCHLD and that live less than 0.1 s; CPU time spent between two execs;
- deleted files kept by mmap alone count to no disk limit;
- uptime, load, CPU model and number, kernel version, mount options and layer paths in /proc are the host's.
"""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from services.kernel.sandbox import layers
from services.kernel.sandbox.base import host_base
from services.kernel.sandbox.bundle import open_bundle
from services.kernel.sandbox.launch import Plan, fixed_environment, launch, uid_of
from services.kernel.sandbox.owner import claim_folder
from services.kernel.sandbox.process import BubblewrapSandbox
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
from services.kernel.sandbox.seccomp import system_call_filter
from services.kernel.sandbox.self_check import run_probes
from services.kernel.sandbox.session import check_limits
from services.kernel.sandbox.skeleton import FOLDERS_OPEN_TO_ALL
from services.kernel.sandbox.transfer import inside_path


@dataclass(frozen=True)
class Saved:
    """Layers of a snapshot, bottom first: all of them, and those without what decides which programs run."""

    folder: Path
    plain: tuple[Path, ...]
    trusted: tuple[Path, ...]


class BubblewrapBackend:
    """Sandboxes whose writable layers lie in `work_dir` (not on an overlayfs itself). Use it from one event loop."""

    def __init__(self, work_dir: Path) -> None:
        self._work_dir = work_dir.absolute()
        self._owner: asyncio.Task[Path] | None = None
        self._closed = False
        self._bundle_fd = -1
        self._lock_fd: int | None = None
        self._seccomp = b""
        self._serial = 0
        self._open: set[BubblewrapSandbox] = set()
        self._saved: dict[SnapshotId, Saved] = {}
        self._dropped: set[Path] = set()
        self._needs_nothing: set[tuple[str, str]] = set()

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
    ) -> BubblewrapSandbox:
        """See `SandboxBackend.start`. Without `pins` the user is the image's.

        Raises:
            SandboxRefusedError: limits out of bounds, an unknown snapshot or user, a mount target that is no absolute
            path. SandboxError: bubblewrap did not start; the text says why.
        """
        pins = pins or Pins(user_uid=uid_of(image, image.user))
        limits = check_limits(limits or Limits())
        env = fixed_environment(image, pins, trusted_system=trusted_system)
        saved = self._find(snapshot) if snapshot is not None else None
        below = (*image.lowers, *((saved.trusted if trusted_system else saved.plain) if saved else ()))
        folder = await self._new_folder()
        plan = Plan(image, pins, below, folder / "upper", folder / "work", mounts, env, saved.trusted if saved else ())
        try:
            self._prepare(plan)
            process, sock, errors_fd = launch(plan, self._bundle_fd, self._seccomp)
        except BaseException:
            layers.remove_tree(folder)
            raise
        sandbox = BubblewrapSandbox(plan, limits, process, sock, folder, self._forget, self._save)
        self._open.add(sandbox)
        try:
            await sandbox.wait_ready(errors_fd)
        except BaseException:
            await sandbox.close()
            raise
        finally:
            os.close(errors_fd)
        return sandbox

    def _prepare(self, plan: Plan) -> None:
        """Make the folders that every sandbox has, and mount points that no link of a lower layer can lead
        elsewhere.
        """
        plan.upper.mkdir()
        plan.upper.chmod(0o755)
        plan.work.mkdir()
        image, key = plan.image, (plan.image.digest, plan.image.workdir)
        if key not in self._needs_nothing or plan.layers != image.lowers:
            for path, mode in FOLDERS_OPEN_TO_ALL.items():
                layers.ensure_folder(plan.upper, plan.layers, path, mode)
            layers.ensure_folder(plan.upper, plan.layers, os.fsdecode(inside_path(image.workdir)).strip("/"))
            if plan.layers == image.lowers and not any(plan.upper.iterdir()):
                self._needs_nothing.add(key)
        for mount in plan.mounts:
            target = os.fsdecode(inside_path(mount.target)).strip("/")
            if mount.source.is_dir():
                layers.ensure_folder(plan.upper, plan.layers, target)
            else:
                layers.ensure_file(plan.upper, plan.layers, target)

    def _find(self, snapshot: SnapshotId) -> Saved:
        try:
            return self._saved[snapshot]
        except KeyError:
            raise SandboxRefusedError(f"no snapshot {snapshot!r} in this backend") from None

    async def _new_folder(self) -> Path:
        if self._owner is None and not self._closed:
            self._owner = asyncio.create_task(asyncio.to_thread(self._take_work_dir))
        owner = await asyncio.shield(self._owner) if self._owner else None
        if owner is None or self._closed:
            raise SandboxError("the sandbox backend is closed")
        self._serial += 1
        folder = owner / str(self._serial)
        folder.mkdir()
        return folder

    def _take_work_dir(self) -> Path:
        """A folder of our own, locked as long as this process lives; those of dead owners are removed."""
        owner, self._lock_fd = claim_folder(self._work_dir)
        self._bundle_fd = open_bundle()
        self._seccomp = system_call_filter()
        return owner

    def _forget(self, sandbox: BubblewrapSandbox) -> None:
        self._open.discard(sandbox)
        _remove_trees(self._take_unused())

    async def _save(self, sandbox: BubblewrapSandbox) -> SnapshotId:
        """The writable layer of an ended sandbox becomes two layers, so that a trusted start can leave one out."""
        plan = sandbox.plan
        system = sandbox.folder / "system"
        await asyncio.to_thread(layers.part_system, plan.upper, system, plan.layers)
        inherited = plan.layers[len(plan.image.lowers) :]
        snapshot = SnapshotId(f"{sandbox.folder.parent.name}/{sandbox.folder.name}")
        self._saved[snapshot] = Saved(
            sandbox.folder, (*inherited, plan.upper, system), (*plan.inherited_trusted, plan.upper)
        )
        self._open.discard(sandbox)
        return snapshot

    async def take_layer(self, snapshot: SnapshotId, target: Path) -> None:
        """Move a saved writable layer out as one layer directory, for a new image; the snapshot is dropped.

        Raises:
            SandboxRefusedError: the snapshot is unknown or in use, or `target` is there or on another file system.
        """
        saved = self._find(snapshot)
        upper, system = saved.plain[-2:]
        if await asyncio.to_thread(os.path.lexists, target) or self._in_use(saved.folder, but=snapshot):
            raise SandboxRefusedError(f"{target} is there already, or snapshot {snapshot} is in use")
        del self._saved[snapshot]
        await asyncio.to_thread(layers.join_system, upper, system)
        try:
            upper.rename(target)
        except OSError as error:
            raise SandboxRefusedError(f"{target} must be on the file system of {self._work_dir}: {error}") from error
        finally:
            await asyncio.to_thread(layers.remove_tree, saved.folder)

    async def drop(self, snapshot: SnapshotId) -> None:
        """Forget a snapshot; its files go as soon as no sandbox and no later snapshot stands on them."""
        saved = self._saved.pop(snapshot, None)
        if saved is not None:
            self._dropped.add(saved.folder)
            await asyncio.to_thread(_remove_trees, self._take_unused())

    def image_files(self, image: Image) -> Iterator[ImageFile]:
        try:
            for path, place, size in layers.merged_files(image.lowers):
                yield ImageFile(path, size, partial(layers.open_file, place))
        except OSError as error:
            raise SandboxRefusedError(f"the image's files cannot be read: {error}") from error

    def _in_use(self, folder: Path, but: SnapshotId | None = None) -> bool:
        stacks = [sandbox.plan.layers for sandbox in self._open]
        stacks += [saved.plain for name, saved in self._saved.items() if name != but]
        return any(layer.parent == folder for stack in stacks for layer in stack)

    def _take_unused(self) -> list[Path]:
        """Dropped folders that nothing stands on. On the event loop, as all that knows what is open."""
        unused = [folder for folder in self._dropped if not self._in_use(folder)]
        self._dropped.difference_update(unused)
        return unused

    async def self_check(self) -> SelfCheck:
        """Try every limit on this host's own base; takes two to three seconds. Where nothing starts, nothing holds."""
        base = await asyncio.to_thread(host_base, self._work_dir / "self-check")
        return SelfCheck("bubblewrap", await run_probes(self, base.image()))

    async def close(self) -> None:
        self._closed = True
        async with asyncio.TaskGroup() as group:
            for sandbox in list(self._open):
                group.create_task(sandbox.close())
        opening, self._owner = self._owner, None
        self._saved.clear()
        if opening is not None and not (await asyncio.wait({opening}))[0].pop().exception():
            await asyncio.to_thread(layers.remove_tree, opening.result())
            for fd in (self._bundle_fd, self._lock_fd):
                if fd is not None:
                    os.close(fd)


def _remove_trees(folders: list[Path]) -> None:
    for folder in folders:
        layers.remove_tree(folder)
