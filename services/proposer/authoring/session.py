"""One proposal: a brain at work in a sandbox of its own, with its workspace, its channel for drafts and its memory."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from schemas.parts import GateResult
from schemas.science import ProposalRules
from services.kernel.agent.conversation import Brain, EndReason, Episode, HarnessLimits
from services.kernel.agent.harness import run_group
from services.kernel.archive import ArchiveError, FileEntry, check_name
from services.kernel.errors import KernelError
from services.kernel.sandbox.protocol import Limits, Mount, Sandbox, SandboxRefusedError
from services.kernel.workshop import Workshop
from services.proposer.authoring.client import client_program
from services.proposer.authoring.server import Check, DraftChannel, serve
from services.proposer.authoring.workspace import Workspace, memory_delta, write_workspace

HOME = "/workspace"
CHANNEL = "/run/envwheel"
PATH = f"{CHANNEL}:/usr/local/bin:/usr/bin:/bin"
SHOWN_BYTES_MAX = 16_384
MEMORY_FILES_MAX = 200
MEMORY_FILE_BYTES_MAX = 65_536


class SessionFailedError(KernelError):
    """The sandbox or the host's side of the drafts' channel failed; the author is not at fault."""

    boundary = "sandbox"
    retry = True


@dataclass(frozen=True)
class Session:
    episode: Episode
    submitted: bytes | None
    """Canonical archive of the task, or None where the author ended without one."""
    memory: Mapping[str, FileEntry]
    """Files of the memory that were written or changed."""


async def author(
    workshop: Workshop, brain: Brain, workspace: Workspace, rules: ProposalRules, check: Check, work: Path
) -> Session:
    """Let the brain work until it submits, ends, or a counted limit ends it.

    Raises:
        SessionFailedError, SandboxError: infrastructure.
    """
    folder = Path(tempfile.mkdtemp(prefix="s", dir=work))
    host = _Host(check)
    channel = DraftChannel(host.check, host.submit)
    try:
        tools = folder / "c"
        write_workspace(workspace, folder / "w")
        tools.mkdir()
        (tools / "envwheel-draft").write_bytes(client_program())
        (tools / "envwheel-draft").chmod(0o755)
        with _short_name(tools) as short:
            async with serve(channel, short / "draft.sock"):
                episode, memory = await _converse(workshop, brain, workspace, rules, folder)
                kept_waiting = episode.ended is EndReason.hung and host.busy
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if channel.failures:
        raise SessionFailedError(f"drafts' channel: {channel.failures[0]}") from channel.failures[0]
    if kept_waiting:
        raise SessionFailedError("the command that waited for a draft check met its wall limit before the answer came")
    if episode.ended is EndReason.infra_failed:
        raise SessionFailedError(episode.failure)
    return Session(episode, host.submitted, memory)


class _Host:
    """What the drafts' channel asks of us."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self.busy = False
        self.submitted: bytes | None = None

    async def check(self, archive: bytes) -> Sequence[GateResult]:
        self.busy = True
        try:
            return await self._check(archive)
        finally:
            self.busy = False

    async def submit(self, archive: bytes) -> str:
        self.submitted = archive
        return "taken; the session is over"


@contextmanager
def _short_name(folder: Path) -> Iterator[Path]:
    """Another path of the folder, for a socket: those take about 100 bytes, and a run's folder may lie deep."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


async def _converse(
    workshop: Workshop, brain: Brain, workspace: Workspace, rules: ProposalRules, folder: Path
) -> tuple[Episode, dict[str, FileEntry]]:
    exec_limits = Limits(cpu_s=rules.cpu_s, wall_s=rules.cpu_s * 10)
    limits = HarnessLimits(turns_max=rules.turns_max, shown_bytes_max=SHOWN_BYTES_MAX, exec=exec_limits)
    image = replace(workshop.base_image, workdir=HOME, env=(("PATH", PATH),))
    sandbox = await workshop.backend.start(image, limits=exec_limits, mounts=(Mount(folder / "c", CHANNEL),))
    try:
        await sandbox.put(folder / "w", HOME)
        (episode,) = await run_group(brain, [_instruction(workspace)], [sandbox], limits)
        before = workspace.memory or {}
        return episode, memory_delta(before, await _read_memory(sandbox, before))
    finally:
        await sandbox.close()


def _instruction(workspace: Workspace) -> str:
    """What a model is told first; the rest it reads in its workspace."""
    asked = workspace.assignment
    return (
        f"Write a new {asked['domain']} environment ({asked['direction']}) in task/. Read GUIDE.md and assignment.json "
        "first; check drafts with `envwheel-draft check`, and end with `envwheel-draft submit`."
    )


async def _read_memory(sandbox: Sandbox, before: Mapping[str, FileEntry]) -> dict[str, FileEntry]:
    """Plain files below memory/ with names that an archive can hold, new ones first, within bounds. Anything else that
    lies there is left behind.
    """
    listed = await sandbox.exec(("find", f"{HOME}/memory", "-type", "f", "-printf", "%P\\0"))
    names = [name for name in listed.output.decode("utf-8", "replace").split("\0") if _is_memory(name)]
    found: dict[str, FileEntry] = {}
    for name in sorted(names, key=lambda name: (name in before, name))[:MEMORY_FILES_MAX]:
        try:
            found[name] = FileEntry(await sandbox.get(f"{HOME}/memory/{name}", bytes_max=MEMORY_FILE_BYTES_MAX))
        except (SandboxRefusedError, FileNotFoundError):
            continue
    return found


def _is_memory(name: str) -> bool:
    try:
        check_name(name)
    except ArchiveError:
        return False
    return name.partition("/")[0] != "README.md"
