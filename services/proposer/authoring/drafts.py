"""A session's drafts before the other services: asked for and answered on the log, as everything is."""

from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing

from schemas.envelope import Event
from schemas.identity import derive_seed, event_id
from schemas.messages import (
    CheckpointPublished,
    DraftChecked,
    DraftCheckRequested,
    EnvRequested,
    RolloutCompleted,
    RolloutRequested,
)
from schemas.outcomes import Purpose, Role, Verdict
from schemas.parts import GateResult
from schemas.subjects import Subject
from services.kernel.agent.normaliser import clip
from services.kernel.agent.transcript import decode_content
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import Speaker, append_surely, read_event
from services.kernel.log import EventLog
from services.proposer.authoring.client import ATTEMPTS_MAX
from services.proposer.authoring.gathering import VERIFIER, readable
from services.proposer.authoring.server import DraftRefusedError, Tried
from services.proposer.authoring.session import SessionFailedError

TRANSCRIPT_BYTES_MAX = 32 * 1024


class Drafts:
    """Of one request. All methods raise SessionFailedError where there is no answer to be had."""

    def __init__(self, request: EnvRequested, log: EventLog, speaker: Speaker, artifacts: ArtifactStore) -> None:
        self._request = request
        self._log = log
        self._speaker = speaker
        self._artifacts = artifacts
        self._tries: Counter[str] = Counter()

    async def check(self, draft: bytes) -> Sequence[GateResult]:
        """What the gates of the validator say; of hidden ones the outcome alone."""
        request, run = self._request, self._speaker.run
        asked = DraftCheckRequested(
            round=request.round,
            slot=request.slot,
            revision=request.revision,
            draft=self._artifacts.put(draft),
            pool_version=request.pool_version,
        )
        await append_surely(self._log, [self._speaker.entry(asked, cause=request.id)])
        id_ = event_id(DraftChecked.name, asked.key())
        subject = str(Subject(run, DraftChecked.name, asked.round, asked.lane(), id_))
        async with aclosing(self._log.read(0, (subject,), follow=True)) as records:
            async for stored in records:
                checked = read_event(run, stored).body
                if isinstance(checked, DraftChecked):
                    if checked.verdict is Verdict.infra_failed:
                        raise SessionFailedError("the draft could not be checked")
                    return checked.gates
        raise SessionFailedError("the log ended before the draft was checked")

    async def attempt(self, draft: bytes, attempts: int) -> Sequence[Tried]:
        """How the current solver does on the draft. Attempts that failed for infrastructure are left out.

        Raises:
            DraftRefusedError: the draft cannot be graded.
        """
        request = self._request
        env = self._artifacts.put(draft)
        # Another count of attempts is another request: an author that begins anew may ask otherwise, and the log has
        # one body for an id.
        ordinal = self._tries[env] * ATTEMPTS_MAX + attempts - 1
        self._tries[env] += 1
        asked = RolloutRequested(
            round=request.round,
            env=env,
            checkpoint_version=request.checkpoint_version,
            checkpoint=await self._checkpoint(),
            purpose=Purpose.draft,
            attempts=attempts,
            seed=derive_seed(request.assignment.seed, "try", env, ordinal),
            ordinal=ordinal,
            slot=request.slot,
            revision=request.revision,
        )
        await append_surely(self._log, [self._speaker.entry(asked, cause=request.id)])
        done = await self._group(asked)
        tried = [each for event in done if (each := self._tried(event)) is not None]
        if not tried:
            raise SessionFailedError(f"none of {attempts} attempts on the draft could be made")
        return tried

    async def _checkpoint(self) -> str:
        """Digest of the solver's checkpoint that the request names by its version."""
        run, version = self._speaker.run, self._request.checkpoint_version
        id_ = event_id(CheckpointPublished.name, (Role.solver.value, version))
        async with aclosing(self._log.read(0, (f"{run}.{CheckpointPublished.name}.*.*.{id_}",))) as records:
            async for stored in records:
                body = read_event(run, stored).body
                if isinstance(body, CheckpointPublished):
                    return body.checkpoint
        raise SessionFailedError(f"version {version} of the solver is not in the log")

    async def _group(self, asked: RolloutRequested) -> list[Event]:
        """All attempts of a request, in order; waits for them."""
        run = self._speaker.run
        ids = [event_id(RolloutCompleted.name, (asked.id, attempt)) for attempt in range(asked.attempts)]
        subjects = tuple(str(Subject(run, RolloutCompleted.name, asked.round, asked.lane(), id_)) for id_ in ids)
        found: dict[str, Event] = {}
        async with aclosing(self._log.read(0, subjects, follow=True)) as records:
            async for stored in records:
                event = read_event(run, stored)
                found[event.id] = event
                if len(found) == len(ids):
                    return [found[id_] for id_ in ids]
        raise SessionFailedError("the log ended before the draft was tried")

    def _tried(self, event: Event) -> Tried | None:
        body = event.body
        if not isinstance(body, RolloutCompleted):
            return None
        if body.broken:
            raise DraftRefusedError("the draft cannot be graded, not even untouched")
        if body.reward is None or body.content is None:
            return None
        turns = decode_content(self._artifacts.get(body.content)).turns
        transcript = "\n".join(f"$ {turn.command}\n{turn.shown}" for turn in turns)
        printed = event.meta.observations.get(VERIFIER)
        return Tried(
            outcome=body.outcome,
            reward=body.reward,
            tests=body.tests,
            transcript=clip(transcript, TRANSCRIPT_BYTES_MAX),
            verifier=readable(self._artifacts.get(printed)).decode() if printed else "",
        )
