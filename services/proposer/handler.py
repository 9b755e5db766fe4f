"""The proposer's work: let the bound roster entry write an environment, and say what came of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import UnsetType

from schemas.envelope import Event, Meta
from schemas.identity import derive_seed
from schemas.messages import EnvAbandoned, EnvProposed, EnvRequested
from schemas.models import ModelRules
from schemas.outcomes import Abandoned
from schemas.parts import Usage
from schemas.science import ProposalRules
from services.kernel.agent.chat_brain import ChatBrain
from services.kernel.agent.conversation import Brain as Speaking
from services.kernel.agent.conversation import EndReason
from services.kernel.agent.dialogue import Dialogue
from services.kernel.agent.scripted import ScriptedBrain
from services.kernel.agent.transcript import encode
from services.kernel.archive import pack
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import Answer, Speaker, TryFailed, work_error
from services.kernel.errors import KernelError, Unreadable
from services.kernel.log import EventLog
from services.kernel.meter import CpuMeter, Watch
from services.kernel.models.chat.client import ChatClient
from services.kernel.models.chat.endpoints import read_endpoint
from services.kernel.models.chat.message import ChatMessage, TokenUsage
from services.kernel.workshop import Workshop
from services.proposer.authoring.drafts import Drafts
from services.proposer.authoring.gathering import gather
from services.proposer.authoring.procedural import BRAINS, Brain
from services.proposer.authoring.prompt import SYSTEM, prompt_text
from services.proposer.authoring.session import AT_A_TERMINAL, Session, author
from services.proposer.authoring.workspace import Workspace
from services.proposer.authoring.written import write

REASONS: Mapping[EndReason, Abandoned] = {
    EndReason.submitted: Abandoned.no_submission,
    EndReason.malformed: Abandoned.malformed,
    EndReason.refused: Abandoned.refused,
}
"""Why there is no proposal, by how the conversation ended; all other ends are limits: over budget."""


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
        endpoints: Path | None = None,
        brains: Mapping[str, Brain] = BRAINS,
    ) -> None:
        self._log = log
        self._speaker = speaker
        self._artifacts = artifacts
        self._workshop = workshop
        self._rules = rules
        self._work = work
        self._endpoints = endpoints
        self._brains = brains
        work.mkdir(parents=True, exist_ok=True)
        self._meter = CpuMeter()

    async def close(self) -> None:
        await self._workshop.close()

    async def handle(self, event: Event, try_: int) -> Sequence[Answer]:
        request = event.body
        if not isinstance(request, EnvRequested):
            raise Unreadable(f"{request.name} is no work for the proposer")
        watch = Watch()
        if not isinstance(request.entry.rules, UnsetType):
            return [await self._ask(request, request.entry.rules, watch)]
        brain, arm = self._brains.get(request.entry.model), request.entry.arm
        if brain is None:
            raise UnknownBrainError(f"no brain {request.entry.model!r} here; known: {', '.join(self._brains)}")
        session = await self._at_terminal(request, ScriptedBrain(lambda _: brain(arm)))
        return [self._answer(request, session, watch)]

    async def _ask(self, request: EnvRequested, rules: ModelRules, watch: Watch) -> Answer:
        """A model behind an endpoint. Whatever fails the try, what it has spent is said.

        Raises:
            TryFailed: the endpoint or a sandbox; never the model's doing.
        """
        async with ChatClient(read_endpoint(self._endpoints, rules.endpoint)) as client:
            try:
                session = await self._session(request, rules, client)
            except Exception as error:
                usage = usage_of(client.spent, 0)
                meta = self._meta(watch, money_usd=rules.price.usd(usage))
                raise TryFailed(work_error(error), meta, usage) from error
            return self._answer(request, session, watch, client.spent)

    async def _session(self, request: EnvRequested, rules: ModelRules, client: ChatClient) -> Session:
        seed = derive_seed(request.assignment.seed, "author", request.revision)
        if request.entry.arm == "terminal":
            return await self._at_terminal(request, ChatBrain(client, rules, seed=seed, system=AT_A_TERMINAL))
        prompt = prompt_text(await self._workspace(request), rules.prompt_bytes_max)
        told = (ChatMessage(role="system", content=SYSTEM), ChatMessage(role="user", content=prompt))
        retries = self._rules.feedback_max if request.entry.arm == "prompt+feedback" else 0
        return await write(Dialogue(client, rules, told, seed=seed), self._drafts(request).check, retries=retries)

    async def _at_terminal(self, request: EnvRequested, brain: Speaking) -> Session:
        drafts, workspace = self._drafts(request), await self._workspace(request)
        return await author(self._workshop, brain, workspace, self._rules, drafts.check, self._work, drafts.attempt)

    def _drafts(self, request: EnvRequested) -> Drafts:
        return Drafts(request, self._log, self._speaker, self._artifacts)

    async def _workspace(self, request: EnvRequested) -> Workspace:
        return await gather(request, self._log, self._speaker.run, self._artifacts)

    def _answer(self, request: EnvRequested, session: Session, watch: Watch, spent: TokenUsage | None = None) -> Answer:
        """What a session came to. `spent`: by a model behind an endpoint, which may say otherwise the next time."""
        content, observation = encode(session.episode)
        stored = [content, observation]
        if session.memory:
            stored.append(pack(dict(session.memory)))
        if session.submitted is not None:
            stored.append(session.submitted)
        digests = self._artifacts.put_many(stored)
        delta = digests[2] if session.memory else None
        usage = usage_of(spent or TokenUsage(), len(session.episode.turns))
        rules = request.entry.rules
        money_usd = None if isinstance(rules, UnsetType) else rules.price.usd(usage)
        meta = self._meta(watch, session, digests[1], money_usd)
        if session.submitted is None:
            abandoned = EnvAbandoned(
                round=request.round,
                slot=request.slot,
                revision=request.revision,
                reason=REASONS.get(session.episode.ended, Abandoned.over_budget),
                entry=request.entry,
                transcript=digests[0],
                usage=usage,
                memory_delta=delta,
                detail=session.episode.ended.value,
            )
            return Answer(abandoned, meta, deterministic=spent is None)
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
        return Answer(proposed, meta, deterministic=spent is None)

    def _meta(
        self,
        watch: Watch,
        session: Session | None = None,
        observation: str | None = None,
        money_usd: float | None = None,
    ) -> Meta:
        return Meta(
            started_ns=watch.started_ns,
            wall_s=watch.wall_s(),
            cpu_s=self._meter.take(),
            sandbox_cpu_s=session.episode.cpu_s if session else None,
            observation=observation,
            money_usd=money_usd,
        )


def usage_of(spent: TokenUsage, turns: int) -> Usage:
    return Usage(
        prompt_tokens=spent.prompt_tokens,
        cached_tokens=spent.cached_tokens,
        completion_tokens=spent.completion_tokens,
        turns=turns,
    )
