"""Scripted workers: the answer to every work message as a pure function of it. Fast stand-ins for hours of real work in
tests of the log's rules; what they answer varies with the seed like the real thing, and depends on nothing else."""

from dataclasses import dataclass, field

import msgspec

from schemas.identity import derive_seed, digest_of
from schemas.messages import (
    CheckpointPublished,
    EnvAbandoned,
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
)
from schemas.outcomes import Abandoned, CheckpointReason, GateOutcome, Role, RolloutOutcome, Verdict
from schemas.parts import GateResult, Usage


def chance(*labels: str | int) -> float:
    """A number in [0, 1) from what it is for."""
    return derive_seed(0, *labels) / 2**53


def fake_digest(*labels: object) -> str:
    return digest_of(msgspec.json.encode([str(label) for label in labels]))


@dataclass(frozen=True)
class Script:
    """What the scripted workers answer. The fields bend it for single tests."""

    rewards: dict[tuple[str, int], float] = field(default_factory=dict)
    """Rewards by (request id, attempt) that replace the drawn ones."""
    failing: dict[str, str] = field(default_factory=dict)
    """Name of the failing test by environment."""
    pass_rates: dict[str, float] = field(default_factory=dict)
    invalid_share: float = 0.2
    abandoned_share: float = 0.05
    rotten_share: float = 0.2
    """Of rechecks; a tenth of the others end as trouble of the machine."""

    def answer(self, work: Message) -> list[Message]:
        match work:
            case RunStarted():
                return [self._checkpoint(0, 0, work.checkpoint, None, CheckpointReason.cold_start)]
            case EnvRequested():
                return [self._propose(work)]
            case EnvProposed():
                return [self._validate(work)]
            case EnvRecheckRequested():
                return [self._recheck(work)]
            case RolloutRequested():
                return [self._attempt(work, attempt) for attempt in range(work.attempts)]
            case UpdatePlanned():
                learned = fake_digest(work.checkpoint, work.groups, work.seed) if work.groups else work.checkpoint
                reason = CheckpointReason.update if work.groups else CheckpointReason.no_signal
                return [self._checkpoint(work.round, work.update, learned, work.checkpoint, reason)]
            case _:
                return []

    def _checkpoint(
        self, round_: int, version: int, digest: str, parent: str | None, reason: CheckpointReason
    ) -> CheckpointPublished:
        return CheckpointPublished(
            round=round_,
            role=Role.solver,
            checkpoint_version=version,
            checkpoint=digest,
            state=fake_digest("state", digest),
            parent=parent,
            reason=reason,
            metrics={"loss": chance(digest)},
        )

    def _propose(self, work: EnvRequested) -> EnvProposed | EnvAbandoned:
        name = (work.assignment.seed, work.revision, work.entry.name)
        delta = fake_digest("delta", *name)
        if chance("abandon", *name) < self.abandoned_share:
            return EnvAbandoned(
                round=work.round,
                slot=work.slot,
                revision=work.revision,
                reason=Abandoned.no_submission,
                entry=work.entry,
                memory_delta=delta,
            )
        return EnvProposed(
            round=work.round,
            slot=work.slot,
            revision=work.revision,
            env=fake_digest("env", *name),
            parent=work.assignment.parent,
            cited=tuple(ref.id for ref in work.assignment.rollouts),
            entry=work.entry,
            checkpoint=None,
            transcript=fake_digest("transcript", *name),
            usage=Usage(turns=5),
            pool_version=work.pool_version,
            memory_delta=delta,
        )

    def _validate(self, work: EnvProposed) -> EnvValidated:
        good = chance("valid", work.env) >= self.invalid_share
        gate = GateResult(gate="oracle passes", outcome=GateOutcome.passed if good else GateOutcome.failed)
        sketch = "".join(f"{derive_seed(1, work.env, place) % 2**32:08x}" for place in range(16))
        return EnvValidated(
            round=work.round,
            slot=work.slot,
            revision=work.revision,
            env=work.env,
            verdict=Verdict.valid if good else Verdict.invalid,
            gates=(gate,),
            sketch=sketch,
        )

    def _recheck(self, work: EnvRecheckRequested) -> EnvRechecked:
        drawn = chance("rot", work.env, work.ordinal)
        verdict = Verdict.invalid if drawn < self.rotten_share else Verdict.valid
        if drawn > 0.9:
            verdict = Verdict.infra_failed
        outcome = GateOutcome.failed if verdict is Verdict.invalid else GateOutcome.passed
        gates = (GateResult(gate="not flaky", outcome=outcome, detail="other results of x"),)
        return EnvRechecked(
            round=work.round,
            env=work.env,
            ordinal=work.ordinal,
            verdict=verdict,
            gates=() if verdict is Verdict.infra_failed else gates,
        )

    def _attempt(self, work: RolloutRequested, attempt: int) -> RolloutCompleted:
        rate = self.pass_rates.get(work.env, 0.1 + 0.8 * chance("rate", work.env))
        drawn = chance("pass", work.env, work.seed, attempt) < min(1.0, rate + 0.02 * work.checkpoint_version)
        reward = self.rewards.get((work.id, attempt), 1.0 if drawn else 0.0)
        failing = self.failing.get(work.env, f"skill{derive_seed(2, work.env) % 3}__result")
        return RolloutCompleted(
            round=work.round,
            request=work.id,
            attempt=attempt,
            env=work.env,
            purpose=work.purpose,
            checkpoint_version=work.checkpoint_version,
            outcome=RolloutOutcome.solved if reward == 1.0 else RolloutOutcome.unsolved,
            reward=reward,
            tests={failing: reward == 1.0, "other__kept": True},
            content=fake_digest("content", work.id, attempt),
            usage=Usage(prompt_tokens=20, completion_tokens=10, turns=2),
        )
