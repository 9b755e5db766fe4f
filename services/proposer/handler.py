"""The proposer's work: let the brain of the bound roster entry write an environment, and say what came of it."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from schemas.envelope import Event, Meta
from schemas.identity import event_id
from schemas.messages import DraftChecked, DraftCheckRequested, EnvAbandoned, EnvProposed, EnvRequested
from schemas.outcomes import Abandoned, Verdict
from schemas.parts import CitedRollout, GateResult, Usage
from schemas.science import ProposalRules
from schemas.subjects import Subject
from services.kernel.agent.conversation import EndReason
from services.kernel.agent.scripted import ScriptedBrain
from services.kernel.agent.transcript import decode_content, encode
from services.kernel.archive import FileEntry, pack, unpack
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import Answer, Speaker, append_surely, read_event
from services.kernel.errors import KernelError, Unreadable
from services.kernel.log import EventLog
from services.kernel.meter import CpuMeter, Watch
from services.kernel.workshop import Workshop
from services.proposer.authoring.procedural import BRAINS, Brain
from services.proposer.authoring.session import Session, SessionFailedError, author
from services.proposer.authoring.workspace import RolloutNote, Workspace, memory_of

OVER_BUDGET = (EndReason.turns_max, EndReason.cpu_limit, EndReason.hung, EndReason.context_overflow)


class UnknownBrainError(KernelError):
    """The roster names a model that this proposer cannot run."""

    boundary = "roster"


class ProposerHandler:
    def __init__(
        self,
        *,
        log: EventLog,
        speaker: Speaker,
        artifacts: ArtifactStore,
        workshop: Workshop,
        rules: ProposalRules,
        work: Path,
        brains: Mapping[str, Brain] = BRAINS,
    ) -> None:
        self._log = log
        self._speaker = speaker
        self._artifacts = artifacts
        self._workshop = workshop
        self._rules = rules
        self._work = work
        self._brains = brains
        work.mkdir(parents=True, exist_ok=True)
        self._meter = CpuMeter()

    async def close(self) -> None:
        await self._workshop.close()

    async def handle(self, event: Event, try_: int) -> Sequence[Answer]:
        request = event.body
        if not isinstance(request, EnvRequested):
            raise Unreadable(f"{request.name} is no work for the proposer")
        if request.entry.model not in self._brains:
            raise UnknownBrainError(f"no brain {request.entry.model!r} here; known: {', '.join(self._brains)}")
        watch = Watch()
        brain = self._brains[request.entry.model]

        async def check(draft: bytes) -> Sequence[GateResult]:
            return await self._check_draft(event, request, draft)

        session = await author(
            self._workshop,
            ScriptedBrain(lambda _: brain()),
            self._workspace(request),
            self._rules,
            check,
            self._work,
        )
        return [self._answer(request, session, watch)]

    def _answer(self, request: EnvRequested, session: Session, watch: Watch) -> Answer:
        content, observation = encode(session.episode)
        stored = [content, observation]
        if session.memory:
            stored.append(pack(dict(session.memory)))
        if session.submitted is not None:
            stored.append(session.submitted)
        digests = self._artifacts.put_many(stored)
        delta = digests[2] if session.memory else None
        usage = Usage(turns=len(session.episode.turns))
        meta = Meta(
            started_ns=watch.started_ns,
            wall_s=watch.wall_s(),
            cpu_s=self._meter.take(),
            sandbox_cpu_s=session.episode.cpu_s,
            observation=digests[1],
        )
        if session.submitted is None:
            reason = Abandoned.over_budget if session.episode.ended in OVER_BUDGET else Abandoned.no_submission
            abandoned = EnvAbandoned(
                round=request.round,
                slot=request.slot,
                revision=request.revision,
                reason=reason,
                entry=request.entry,
                transcript=digests[0],
                usage=usage,
                memory_delta=delta,
                detail=session.episode.ended.value,
            )
            return Answer(abandoned, meta)
        proposed = EnvProposed(
            round=request.round,
            slot=request.slot,
            revision=request.revision,
            env=digests[-1],
            parent=request.assignment.parent,
            cited=tuple(rollout.id for rollout in request.assignment.rollouts),
            entry=request.entry,
            checkpoint=None,
            transcript=digests[0],
            usage=usage,
            pool_version=request.pool_version,
            memory_delta=delta,
        )
        return Answer(proposed, meta)

    async def _check_draft(self, event: Event, request: EnvRequested, draft: bytes) -> Sequence[GateResult]:
        """Ask the validator for a draft's gates and wait for what it says."""
        asked = DraftCheckRequested(
            round=request.round,
            slot=request.slot,
            revision=request.revision,
            draft=self._artifacts.put(draft),
            pool_version=request.pool_version,
        )
        await append_surely(self._log, [self._speaker.entry(asked, cause=event.id)])
        id_ = event_id(DraftChecked.name, asked.key())
        subject = str(Subject(self._speaker.run, DraftChecked.name, asked.round, asked.lane(), id_))
        async with aclosing(self._log.read(0, (subject,), follow=True)) as records:
            async for stored in records:
                checked = read_event(self._speaker.run, stored).body
                if isinstance(checked, DraftChecked):
                    if checked.verdict is Verdict.infra_failed:
                        raise SessionFailedError("the draft could not be checked")
                    return checked.gates
        raise SessionFailedError("the log ended before the draft was checked")

    def _workspace(self, request: EnvRequested) -> Workspace:
        order = request.assignment
        return Workspace(
            assignment=_assignment(request),
            parent=self._tree(order.parent),
            previous=self._tree(request.evidence.env if request.evidence else None),
            rollouts=[self._note(rollout) for rollout in order.rollouts],
            memory=memory_of([unpack(self._artifacts.get(delta)) for delta in request.memory]),
            past=[unpack(self._artifacts.get(env)) for env in order.past],
        )

    def _tree(self, env: str | None) -> dict[str, FileEntry] | None:
        return None if env is None else unpack(self._artifacts.get(env))

    def _note(self, rollout: CitedRollout) -> RolloutNote:
        raw = self._artifacts.get(rollout.content)
        commands = [turn.command for turn in decode_content(raw).turns]
        return RolloutNote(reward=rollout.reward, tests=rollout.tests, commands=commands, transcript=raw)


def _assignment(request: EnvRequested) -> dict[str, Any]:
    """assignment.json: the order, and for a revision the evidence that it answers."""
    order = request.assignment
    told: dict[str, Any] = {
        "round": request.round,
        "slot": request.slot,
        "revision": request.revision,
        "direction": order.direction.value,
        "domain": order.domain,
        "seed": order.seed,
        "parent": order.parent,
        "pass_rate": order.pass_rate,
        "commonest_failure": order.commonest_failure,
    }
    if request.evidence is not None:
        told["evidence"] = msgspec.to_builtins(request.evidence)
    return told
