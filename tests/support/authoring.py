"""Runs a brain in a real shell over a real workspace, with the real drafts' channel."""

import asyncio
import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.outcomes import GateOutcome
from schemas.parts import GateResult
from services.kernel.agent.conversation import Observation
from services.kernel.archive import FileEntry, read_tree, unpack
from services.kernel.skills.step import FileSpec
from services.proposer.authoring.client import client_program
from services.proposer.authoring.server import Check, DraftChannel, serve
from services.proposer.authoring.workspace import Workspace, write_workspace
from tests.support.bash_box import run_and_grade

PASSED = GateResult(gate="well_formed", outcome=GateOutcome.passed)
COMMANDS_MAX = 200


@dataclass(frozen=True)
class Session:
    commands: tuple[str, ...]
    submitted: bytes | None
    drafts: tuple[bytes, ...]
    memory: dict[str, FileEntry]

    def file(self, path: str) -> str:
        assert self.submitted is not None
        return unpack(self.submitted)[path].content.decode()


async def passing(archive: bytes) -> Sequence[GateResult]:
    """For tests that look at plans, not at gates."""
    return [PASSED]


def graded(folder: Path) -> Check:
    """Gates that really run the draft: the reference earns 1, an untouched environment less than a half."""
    runs = iter(range(1000))

    async def check(archive: bytes) -> Sequence[GateResult]:
        task = {
            path: FileSpec(entry.content, 0o755 if entry.executable else 0o644)
            for path, entry in unpack(archive).items()
        }
        solve = task["solution/solve.sh"].content.decode()
        oracle = await asyncio.to_thread(run_and_grade, folder / f"{next(runs)}", task, [solve])
        idle = await asyncio.to_thread(run_and_grade, folder / f"{next(runs)}", task, [])
        return [_result("oracle", oracle.reward == 1.0), _result("no_op", idle.reward < 0.5)]

    return check


async def run_session(
    brain: Generator[str, Observation, None], workspace: Workspace, folder: Path, check: Check = passing
) -> Session:
    """Drives the brain to its end; every command is one `bash -c` in the workspace, as in the terminal harness."""
    root, tools = folder / "workspace", folder / "bin"
    write_workspace(workspace, root)
    tools.mkdir()
    (tools / "envwheel-draft").write_bytes(client_program())
    (tools / "envwheel-draft").chmod(0o755)
    submitted: list[bytes] = []
    drafts: list[bytes] = []

    async def noting(archive: bytes) -> Sequence[GateResult]:
        drafts.append(archive)
        return await check(archive)

    async def submit(archive: bytes) -> str:
        submitted.append(archive)
        return "taken"

    channel = DraftChannel(noting, submit)
    socket_path = folder / "draft.sock"
    said: list[str] = []
    async with serve(channel, socket_path):
        environment = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "ENVWHEEL_DRAFT_SOCKET": str(socket_path),
        }
        try:
            command = next(brain)
            while len(said) < COMMANDS_MAX:
                said.append(command)
                command = brain.send(await run_command(command, root, environment))
        except StopIteration:
            pass
    assert channel.failures == []
    assert len(said) < COMMANDS_MAX
    return Session(tuple(said), submitted[0] if submitted else None, tuple(drafts), read_tree(root / "memory"))


async def run_command(command: str, cwd: Path, environment: dict[str, str]) -> Observation:
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        command,
        cwd=cwd,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return Observation(output.decode(errors="replace").rstrip("\n"), process.returncode)


def _result(gate: str, holds: bool) -> GateResult:
    return GateResult(gate=gate, outcome=GateOutcome.passed if holds else GateOutcome.failed)
