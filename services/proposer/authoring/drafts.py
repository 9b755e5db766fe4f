"""A session's drafts before the other services: asked for and answered on the log, as everything is."""

from collections.abc import Sequence
from contextlib import aclosing

from schemas.identity import event_id
from schemas.messages import DraftChecked, DraftCheckRequested, EnvRequested
from schemas.outcomes import Verdict
from schemas.parts import GateResult
from schemas.subjects import Subject
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import Speaker, append_surely, read_event
from services.kernel.log import EventLog
from services.proposer.authoring.session import SessionFailedError


class Drafts:
    """Of one request. All methods raise SessionFailedError where there is no answer to be had."""

    def __init__(self, request: EnvRequested, log: EventLog, speaker: Speaker, artifacts: ArtifactStore) -> None:
        self._request = request
        self._log = log
        self._speaker = speaker
        self._artifacts = artifacts

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
