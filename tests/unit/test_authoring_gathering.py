"""What a request names, and what its rollouts' records hold, becomes the workspace."""

from pathlib import Path

import msgspec

from schemas.codec import same_body
from schemas.envelope import Meta
from schemas.messages import EnvRequested, RolloutCompleted
from schemas.outcomes import Direction, Purpose, Role, RolloutOutcome
from schemas.parts import Assignment, CitedRollout, Evidence, RosterEntry
from services.kernel.agent.conversation import EndReason, Episode, Measured, Turn
from services.kernel.agent.transcript import encode
from services.kernel.archive import FileEntry, pack
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import Speaker
from services.kernel.memory import MemoryLog
from services.proposer.authoring.gathering import gather
from services.proposer.authoring.prompt import prompt_text

RUN = "test"
DRAFT = {"task.toml": FileEntry(b"x = 1\n")}


def request(evidence: Evidence | None, *rollouts: CitedRollout) -> EnvRequested:
    return EnvRequested(
        round=1,
        slot=2,
        revision=1,
        assignment=Assignment(direction=Direction.new, domain="text", seed=3, rollouts=rollouts),
        entry=RosterEntry(name="a", model="a"),
        pool_version=1,
        checkpoint_version=1,
        memory=(),
        evidence=evidence,
    )


class Told:
    """Rollouts on a log, with their transcripts and what their verifiers printed."""

    def __init__(self, folder: Path) -> None:
        self.store = ArtifactStore(folder).create()
        self.log = MemoryLog(RUN, same_body)

    async def rollout(self, command: str, purpose: Purpose, printed: bytes) -> CitedRollout:
        turn = Turn(command=command, shown="out", exit_code=0)
        measured = Measured(output=b"out", output_bytes=3, cpu_s=0.0, wall_s=0.0)
        content, _ = encode(
            Episode(instruction="x", turns=(turn,), measured=(measured,), segments=(), ended=EndReason.submitted)
        )
        digest, output = self.store.put_many([content, printed])
        body = RolloutCompleted(
            request=digest,
            attempt=0,
            env=self.store.put(pack(DRAFT)),
            purpose=purpose,
            checkpoint_version=1,
            outcome=RolloutOutcome.unsolved,
            reward=0.25,
            tests={"a__x": False},
            content=digest,
        )
        entry = Speaker(RUN, Role.solver).entry(body, meta=Meta(observations={"verifier": output}))
        await self.log.append([entry])
        return CitedRollout(id=body.id, content=digest, reward=0.25, tests=body.tests)


async def test_a_diagnosis_is_told_to_the_author_with_what_its_verifier_printed(tmp_path: Path) -> None:
    told = Told(tmp_path)
    attempt = await told.rollout("ls", Purpose.train, b"parent's verifier")
    diagnosis = await told.rollout("sort -n in", Purpose.diagnose, b"draft's verifier")
    evidence = Evidence(kind="calibration", detail="too_hard", env=told.store.put(pack(DRAFT)), diagnosis=diagnosis)
    workspace = await gather(request(evidence, attempt), told.log, RUN, told.store)
    assert workspace.diagnosis is not None
    assert (workspace.diagnosis.commands, workspace.diagnosis.verifier) == (["sort -n in"], b"draft's verifier")
    assert [note.commands for note in workspace.rollouts] == [["ls"]]
    assert workspace.previous == DRAFT
    prompt = prompt_text(workspace, 60_000)
    assert "draft's verifier" in prompt
    assert "sort -n in" in prompt


async def test_without_a_diagnosis_there_is_none_in_the_workspace(tmp_path: Path) -> None:
    told = Told(tmp_path)
    attempt = await told.rollout("ls", Purpose.train, b"")
    evidence = Evidence(kind="calibration", detail="too_easy", env=told.store.put(pack(DRAFT)))
    for given in (evidence, None):
        workspace = await gather(request(given, attempt), told.log, RUN, told.store)
        assert workspace.diagnosis is None
        assert len(workspace.rollouts) == 1
    assert b"diagnosis" not in msgspec.json.encode(evidence)
