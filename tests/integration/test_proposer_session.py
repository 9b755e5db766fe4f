"""A proposer's session: a real sandbox with a workspace, a channel for drafts, a memory, and an end of every kind."""

import asyncio
import json
from collections.abc import AsyncIterator, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from schemas.outcomes import GateOutcome
from schemas.parts import GateResult
from schemas.science import ProposalRules
from services.kernel.agent.conversation import EndReason, Observation
from services.kernel.agent.scripted import ScriptedBrain
from services.kernel.archive import FileEntry, digest, pack, unpack
from services.kernel.harbor.task import read_task
from services.kernel.workshop import Workshop
from services.proposer.authoring.procedural import BRAINS
from services.proposer.authoring.server import CHECKS_MAX
from services.proposer.authoring.session import Session, SessionFailedError, author
from services.proposer.authoring.workspace import RolloutNote, Workspace, memory_of, workspace_files
from services.validator.gates.run import DRAFT_GATES, run_gates
from tests.support.shop import case_of, composed, open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")

RULES = ProposalRules(turns_max=40, cpu_s=20.0)
PASSED = GateResult(gate="builds", outcome=GateOutcome.passed)
ORDER = {"round": 1, "slot": 2, "revision": 0, "direction": "new", "domain": "text", "seed": 11, "parent": None}
PLAIN = Workspace(ORDER)
DRAFT = "mkdir -p task && echo hi > task/instruction.md"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    async with open_shop(tmp_path_factory.mktemp("proposer")) as opened:
        yield opened


@dataclass
class Desk:
    """Where sessions are held; keeps what was heard and which drafts came in."""

    shop: Workshop
    work: Path
    heard: list[Observation] = field(default_factory=list)
    drafts: list[bytes] = field(default_factory=list)

    async def check(self, archive: bytes) -> Sequence[GateResult]:
        self.drafts.append(archive)
        return [PASSED]

    async def hold(
        self, *commands: str, workspace: Workspace = PLAIN, rules: ProposalRules = RULES, check: Any = None
    ) -> Session:
        """A session of an author that says these commands and ends."""

        def script(_: str) -> Generator[str, Observation, None]:
            for command in commands:
                self.heard.append((yield command))

        return await author(self.shop, ScriptedBrain(script), workspace, rules, check or self.check, self.work)


@pytest.fixture
def desk(shop: Workshop, tmp_path: Path) -> Desk:
    deep = tmp_path / "a-folder-with-a-rather-long-name" / "and-another-one-that-is-not-shorter" / "sessions"
    deep.mkdir(parents=True)
    return Desk(shop, deep)


async def gates(shop: Workshop, archive: bytes) -> Sequence[GateResult]:
    report = await run_gates(case_of(shop, archive), DRAFT_GATES)
    return [GateResult(gate=gate.name, outcome=found.outcome, detail=found.detail) for gate, found in report.findings]


@pytest.mark.parametrize("name", BRAINS)
async def test_a_built_in_brain_writes_checks_and_submits_a_valid_harbor_task(desk: Desk, name: str) -> None:
    checked: list[bytes] = []

    async def check(archive: bytes) -> Sequence[GateResult]:
        checked.append(archive)
        return await gates(desk.shop, archive)

    brain = ScriptedBrain(lambda _: BRAINS[name]())
    session = await author(desk.shop, brain, PLAIN, RULES, check, desk.work)
    assert session.submitted is not None
    assert checked[-1] == session.submitted
    reading = read_task(unpack(session.submitted))
    assert (reading.problems, reading.unsupported, reading.implicit) == ((), (), ())
    assert {result.outcome for result in await gates(desk.shop, session.submitted)} == {GateOutcome.passed}
    assert session.episode.ended is EndReason.submitted
    assert session.memory.keys() == {"lessons/0001-0002.md"}
    assert session.memory["lessons/0001-0002.md"].content.startswith(b"- round 1, slot 2, revision 0: wrote ")
    assert list(desk.work.iterdir()) == []


async def test_the_author_finds_its_workspace_byte_for_byte(desk: Desk) -> None:
    workspace = Workspace(
        ORDER,
        parent=composed("tar_pack"),
        previous=composed("copy_file"),
        rollouts=[RolloutNote(0.5, {"a": True, "b": False}, ["ls", "cat x"], b'{"raw": 1}')],
        memory={"lessons/x.md": FileEntry(b"- be kind\n")},
        past=[composed("sort_numbers"), composed("sort_numbers", seed=2)],
    )
    await desk.hold(
        "find . -type f | sort | xargs sha256sum > /tmp/found; cut -c 1-12,65- /tmp/found; pwd", workspace=workspace
    )
    *found, where = desk.heard[0].text.splitlines()
    assert found == [f"{digest(entry.content)[:12]}  ./{path}" for path, entry in workspace_files(workspace).items()]
    assert where == "/workspace"


async def test_an_author_that_ends_without_a_task_has_submitted_nothing(desk: Desk) -> None:
    session = await desk.hold("echo thinking", DRAFT, "envwheel-draft check")
    assert (session.submitted, session.memory, session.episode.ended) == (None, {}, EndReason.submitted)
    assert [unpack(draft) for draft in desk.drafts] == [{"instruction.md": FileEntry(b"hi\n")}]
    assert json.loads(desk.heard[2].text)["gate"] == "builds"


@pytest.mark.parametrize(
    ("commands", "rules", "ended"),
    [
        (["true"] * 5, {"turns_max": 3}, EndReason.turns_max),
        (["while :; do :; done", "envwheel-draft submit"], {"cpu_s": 0.3}, EndReason.cpu_limit),
        (["sleep 300", "envwheel-draft submit"], {"cpu_s": 0.05}, EndReason.hung),
    ],
)
async def test_counted_limits_end_an_author(
    desk: Desk, commands: list[str], rules: dict[str, Any], ended: EndReason
) -> None:
    session = await desk.hold(*commands, rules=msgspec.structs.replace(RULES, **rules))
    assert (session.episode.ended, session.submitted) == (ended, None)


async def test_a_submission_ends_the_session_and_nothing_counts_after_it(desk: Desk) -> None:
    more = "echo other > task/instruction.md; envwheel-draft submit || echo $?; envwheel-draft check"
    session = await desk.hold(DRAFT, f"envwheel-draft submit; {more}", "echo goodbye")
    assert session.submitted == pack({"instruction.md": FileEntry(b"hi\n")})
    assert session.episode.ended is EndReason.submitted
    said = session.episode.turns[-1].shown
    assert (len(session.episode.turns), said.count("over"), session.episode.turns[-1].exit_code) == (2, 3, 1)
    assert desk.drafts == []


RAW = """python3 - <<'END'
import socket, struct, io, tarfile
def ask(data):
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect("/run/envwheel/draft.sock")
        try:
            channel.sendall(data)
            channel.shutdown(socket.SHUT_WR)
        except BrokenPipeError:
            pass
        said = b""
        try:
            while block := channel.recv(65536):
                said += block
        except ConnectionResetError:
            pass
        print(said.decode().strip() or "closed")
def request(archive):
    return b"submit\\n" + struct.pack(">Q", len(archive)) + archive
def tar(name, kind=tarfile.REGTYPE):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    return buffer.getvalue()
ask(b"submit\\n" + struct.pack(">Q", 2**63))
ask(b"submit\\n" + struct.pack(">Q", 10))
ask(b"destroy\\n" + struct.pack(">Q", 0))
ask(b"\\xff" * 100000)
ask(b"")
ask(request(b"x" * (8 * 2**20 + 1)))
ask(request(b"PK\\x03\\x04"))
ask(request(tar("../../etc/passwd")))
ask(request(tar("task.toml", tarfile.SYMTYPE)))
ask(request(tar("task.toml")))
END"""


async def test_hostile_requests_are_answered_and_nothing_is_taken(desk: Desk) -> None:
    session = await desk.hold(RAW, DRAFT, "envwheel-draft check")
    assert session.submitted is None
    answers = desk.heard[0].text.splitlines()
    assert len(answers) == 10
    assert all("error" in answer or answer == "closed" for answer in answers), answers
    assert len([answer for answer in answers if "canonical" in answer]) == 4
    assert desk.heard[2].exit_code == 0
    assert len(desk.drafts) == 1


async def test_a_tree_that_no_archive_holds_stays_in_the_sandbox(desk: Desk) -> None:
    await desk.hold(
        "mkdir task; ln -s /etc/passwd task/link; envwheel-draft submit",
        "rm -r task; mkdir task; head -c 9000000 /dev/zero > task/big; envwheel-draft submit",
        "rm -r task; mkdir task; for i in $(seq 600); do : > task/$i; done; envwheel-draft submit",
        "rm -r task; ln -s / task; envwheel-draft submit",
    )
    assert [heard.exit_code for heard in desk.heard] == [2, 2, 2, 2]
    assert desk.drafts == []


async def test_checks_are_counted_and_then_refused(desk: Desk) -> None:
    many = "for i in $(seq 20); do envwheel-draft check > said || echo $? $(cat said); done"
    session = await desk.hold(DRAFT, many, "envwheel-draft submit")
    assert len(desk.drafts) == CHECKS_MAX
    refused = desk.heard[1].text.splitlines()
    assert len(refused) == 20 - CHECKS_MAX
    assert all(line.startswith("1 ") and "no draft check is left" in line for line in refused)
    assert session.submitted is not None


async def test_trouble_behind_the_channel_is_not_the_authors_fault(desk: Desk) -> None:
    async def breaks(archive: bytes) -> Sequence[GateResult]:
        raise ConnectionError("the log is gone")

    with pytest.raises(SessionFailedError, match="the log is gone") as caught:
        await desk.hold(DRAFT, "envwheel-draft check", "envwheel-draft submit", check=breaks)
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert (caught.value.boundary, caught.value.retry) == ("sandbox", True)
    assert desk.heard[1].exit_code == 2
    assert list(desk.work.iterdir()) == []


async def test_a_check_that_nobody_answers_is_not_the_authors_fault(desk: Desk) -> None:
    async def waits(archive: bytes) -> Sequence[GateResult]:
        await asyncio.sleep(600)
        return []

    with pytest.raises(SessionFailedError, match="waited for a draft check"):
        await desk.hold(DRAFT, "envwheel-draft check", check=waits, rules=msgspec.structs.replace(RULES, cpu_s=0.3))
    session = await desk.hold(
        DRAFT, "envwheel-draft check & sleep 0.5; true", check=waits, rules=msgspec.structs.replace(RULES, cpu_s=5.0)
    )
    assert session.episode.ended is EndReason.submitted


STRANGE = r"""cd memory
echo good > kept.md
rm README.md; mkdir README.md; echo x > README.md/x
printf x > $'line\nbreak'; printf x > $'\xff\xfe'; printf x > $'e\xcc\x81'; printf x > $'\u202e'
ln -s /etc/passwd link; mkfifo pipe; mkdir empty
head -c 100000 /dev/zero > large
mkdir -p a/b; echo deep > a/b/c; echo changed > lessons/old.md; rm lessons/gone.md
cd /; mv /workspace/memory /m; ln -s /etc /workspace/memory; rm /workspace/memory; mv /m /workspace/memory"""


async def test_the_memory_takes_plain_files_alone_and_only_what_changed(desk: Desk) -> None:
    before = {f"lessons/{name}.md": FileEntry(name.encode()) for name in ("old", "gone", "same")}
    session = await desk.hold(STRANGE, workspace=Workspace(ORDER, memory=before))
    assert {name: entry.content for name, entry in session.memory.items()} == {
        "kept.md": b"good\n",
        "a/b/c": b"deep\n",
        "lessons/old.md": b"changed\n",
    }
    assert unpack(pack(session.memory)) == session.memory
    linked = await desk.hold("rm -r memory; ln -s /etc memory")
    assert linked.memory == {}


TOOLMAKING = """mkdir tools/lib; echo 'echo hi' > tools/greet; chmod 755 tools/greet; echo x > tools/lib/data
echo changed >> tools/old; mkdir memory/.tools; echo x > memory/.tools/greet; rm tools/README.md
ln -s /etc/passwd tools/link"""


async def test_tools_last_as_the_memory_does_and_keep_the_right_to_run(desk: Desk) -> None:
    tools = {"old": FileEntry(b"old\n", True), "same": FileEntry(b"#!/bin/sh\necho I run\n", True)}
    session = await desk.hold(TOOLMAKING, "tools/same", workspace=Workspace(ORDER, tools=tools))
    assert session.memory == {
        ".tools/greet": FileEntry(b"echo hi\n", True),
        ".tools/lib/data": FileEntry(b"x\n"),
        ".tools/old": FileEntry(b"old\nchanged\n", True),
    }
    assert desk.heard[1].text == "I run"


async def test_what_an_author_is_shown_cannot_be_changed(desk: Desk) -> None:
    workspace = Workspace(ORDER, parent=composed("tar_pack"), rollouts=[RolloutNote(0.5, {"a": True}, [], b"{}")])
    places = (
        "GUIDE.md",
        "assignment.json",
        "parent/task.toml",
        "parent/new",
        "rollouts/index.json",
        "/run/envwheel/new",
    )
    writes = "; ".join(f"(echo x > {place}) 2>/dev/null && echo wrote {place}" for place in places)
    moves = "rm -rf parent rollouts GUIDE.md; mv rollouts old; umount parent; mount -o remount,rw parent"
    own = "mkdir task; for place in task memory tools /tmp; do echo x > $place/new && echo may write $place; done"
    look = "cat GUIDE.md parent/task.toml rollouts/index.json"
    await desk.hold(f"{writes}; true", f"({moves}) 2>/dev/null; true", own, look, workspace=workspace)
    assert [heard.text for heard in desk.heard[:2]] == ["", ""]
    assert desk.heard[2].text.splitlines() == [f"may write {place}" for place in ("task", "memory", "tools", "/tmp")]
    shown = workspace_files(workspace)
    names = ("GUIDE.md", "parent/task.toml", "rollouts/index.json")
    whole = b"".join(shown[name].content for name in names).decode()
    assert desk.heard[3].text == whole.rstrip("\n")


async def test_a_new_note_is_kept_however_many_old_ones_there_are(desk: Desk) -> None:
    old = {f"lessons/{number:04}.md": FileEntry(b"old\n") for number in range(250)}
    session = await desk.hold("echo new > memory/lessons/9999.md", workspace=Workspace(ORDER, memory=old))
    assert session.memory == {"lessons/9999.md": FileEntry(b"new\n")}


async def test_memories_that_contradict_each_other_still_make_a_workspace(desk: Desk) -> None:
    note = FileEntry(b"note\n")
    memory = memory_of([{"a": note, "b/c": note, "b/d/e": note}, {"a/b": note}, {"b": note}])
    assert memory == {"a/b": note, "b": note}
    await desk.hold("cat memory/a/b memory/b", workspace=Workspace(ORDER, memory=memory))
    assert desk.heard[0].text == "note\nnote"


async def test_a_session_that_is_cancelled_leaves_no_folder_and_no_sandbox(desk: Desk) -> None:
    waiting = asyncio.Event()

    async def waits(archive: bytes) -> Sequence[GateResult]:
        waiting.set()
        await asyncio.sleep(600)
        return []

    held = asyncio.ensure_future(desk.hold(DRAFT, "envwheel-draft check", check=waits))
    async with asyncio.timeout(30):
        await waiting.wait()
    held.cancel()
    with pytest.raises(asyncio.CancelledError):
        await held
    assert list(desk.work.iterdir()) == []
    assert list(desk.shop.base.root.parents[2].glob("sandboxes/owner-*/[0-9]*")) == []
