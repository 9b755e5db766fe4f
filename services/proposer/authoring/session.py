"""One proposal: a brain at work in a sandbox of its own, with its workspace, its channel for drafts and its memory."""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from schemas.science import ProposalRules
from services.kernel.agent.conversation import Brain, EndReason, Episode, HarnessLimits
from services.kernel.agent.harness import run_group
from services.kernel.archive import FileEntry
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
    submitted: list[bytes] = []

    async def submit(archive: bytes) -> str:
        submitted.append(archive)
        return "taken; the session is over"

    channel = DraftChannel(check, submit)
    try:
        tools = folder / "c"
        write_workspace(workspace, folder / "w")
        tools.mkdir()
        (tools / "envwheel-draft").write_bytes(client_program())
        (tools / "envwheel-draft").chmod(0o755)
        async with serve(channel, tools / "draft.sock"):
            episode, memory = await _converse(workshop, brain, workspace, rules, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if channel.failures:
        raise SessionFailedError(f"drafts' channel: {channel.failures[0]}") from channel.failures[0]
    if episode.ended is EndReason.infra_failed:
        raise SessionFailedError(episode.failure)
    return Session(episode, submitted[0] if submitted else None, memory)


async def _converse(
    workshop: Workshop, brain: Brain, workspace: Workspace, rules: ProposalRules, folder: Path
) -> tuple[Episode, dict[str, FileEntry]]:
    exec_limits = Limits(cpu_s=rules.cpu_s, wall_s=rules.cpu_s * 10)
    limits = HarnessLimits(turns_max=rules.turns_max, shown_bytes_max=SHOWN_BYTES_MAX, exec=exec_limits)
    image = replace(workshop.base.image(workdir=HOME), env=(("PATH", PATH),))
    sandbox = await workshop.backend.start(image, limits=exec_limits, mounts=(Mount(folder / "c", CHANNEL),))
    try:
        await sandbox.put(folder / "w", HOME)
        (episode,) = await run_group(brain, [_instruction(workspace)], [sandbox], limits)
        before = workspace.memory or {}
        return episode, memory_delta(before, await _read_memory(sandbox))
    finally:
        await sandbox.close()


def _instruction(workspace: Workspace) -> str:
    """What a model is told first; the rest it reads in its workspace."""
    asked = workspace.assignment
    return (
        f"Write a new {asked['domain']} environment ({asked['direction']}) in task/. Read GUIDE.md and assignment.json "
        "first; check drafts with `envwheel-draft check`, and end with `envwheel-draft submit`."
    )


async def _read_memory(sandbox: Sandbox) -> dict[str, FileEntry]:
    """Plain files below memory/, within bounds; anything else there is left behind."""
    listed = await sandbox.exec(("find", f"{HOME}/memory", "-type", "f", "-print0"))
    names = sorted(name for name in listed.output.decode("utf-8", "replace").split("\0") if name.startswith(HOME))
    found: dict[str, FileEntry] = {}
    for name in names[:MEMORY_FILES_MAX]:
        try:
            content = await sandbox.get(name, bytes_max=MEMORY_FILE_BYTES_MAX)
        except (SandboxRefusedError, FileNotFoundError):
            continue
        found[name.removeprefix(f"{HOME}/memory/")] = FileEntry(content)
    found.pop("README.md", None)
    return found
