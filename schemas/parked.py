"""Work that was parked and is given up: its own answer, with the outcome `infra_failed`."""

from dataclasses import dataclass, field

from schemas.messages import (
    CheckpointPublished,
    DraftChecked,
    DraftCheckRequested,
    EnvAbandoned,
    EnvImported,
    EnvProposed,
    EnvRechecked,
    EnvRecheckRequested,
    EnvRequested,
    EnvValidated,
    Message,
    RolloutCompleted,
    RolloutRequested,
    RunStarted,
    UpdatePlanned,
    WorkParked,
    WorkResolved,
)
from schemas.outcomes import Abandoned, CheckpointReason, Resolution, Role, RolloutOutcome, Verdict


@dataclass
class OpenWork:
    """Work messages of one role, kept until they are answered or given up."""

    role: Role
    kinds: tuple[type[Message], ...]
    give_up: bool = True
    """`science.failures.parked`: give up at once, or wait for the operator."""
    messages: dict[str, Message] = field(default_factory=dict)

    def fold(self, id_: str, body: Message) -> list[Message]:
        """Remember work; answer what is given up."""
        if isinstance(body, self.kinds):
            self.messages[id_] = body
        if isinstance(body, WorkParked) and body.role is self.role and self.give_up:
            return self._answers(body.work_id)
        if isinstance(body, WorkResolved) and body.role is self.role and body.action is Resolution.give_up:
            return self._answers(body.work_id)
        return []

    def close(self, id_: str) -> None:
        self.messages.pop(id_, None)

    def _answers(self, work_id: str) -> list[Message]:
        work = self.messages.pop(work_id, None)
        return [] if work is None else infra_answers(work)


def infra_answers(work: Message) -> list[Message]:
    """The answers of work that nobody could do."""
    match work:
        case RunStarted():
            return [_same_checkpoint(work.checkpoint, None, 0, 0, Role.solver)]
        case EnvRequested():
            return [
                EnvAbandoned(
                    round=work.round,
                    slot=work.slot,
                    revision=work.revision,
                    reason=Abandoned.infra_failed,
                    entry=work.entry,
                )
            ]
        case DraftCheckRequested():
            return [
                DraftChecked(
                    round=work.round,
                    slot=work.slot,
                    revision=work.revision,
                    draft=work.draft,
                    verdict=Verdict.infra_failed,
                    gates=(),
                )
            ]
        case EnvProposed():
            return [
                EnvValidated(
                    round=work.round,
                    slot=work.slot,
                    revision=work.revision,
                    env=work.env,
                    verdict=Verdict.infra_failed,
                    gates=(),
                )
            ]
        case EnvRecheckRequested() | EnvImported():
            return [
                EnvRechecked(
                    round=work.round, env=work.env, ordinal=work.ordinal, verdict=Verdict.infra_failed, gates=()
                )
            ]
        case RolloutRequested():
            return [masked_rollout(work, attempt, "given up") for attempt in range(work.attempts)]
        case UpdatePlanned():
            return [_same_checkpoint(work.checkpoint, work.state, work.update, work.round, work.role)]
        case _:
            return []


def masked_rollout(request: RolloutRequested, attempt: int, detail: str, *, broken: bool = False) -> RolloutCompleted:
    """An attempt without a reward."""
    return RolloutCompleted(
        round=request.round,
        request=request.id,
        attempt=attempt,
        env=request.env,
        purpose=request.purpose,
        checkpoint_version=request.checkpoint_version,
        outcome=RolloutOutcome.infra_failed,
        reward=None,
        tests={},
        content=None,
        broken=broken,
        detail=detail,
    )


def _same_checkpoint(checkpoint: str, state: str | None, version: int, round_: int, role: Role) -> CheckpointPublished:
    return CheckpointPublished(
        round=round_,
        role=role,
        checkpoint_version=version,
        checkpoint=checkpoint,
        state=state,
        parent=checkpoint,
        reason=CheckpointReason.infra_failed,
        metrics={},
    )
