"""The trainer's work: publish the cold start, and turn planned groups into the next checkpoint."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict

from schemas.envelope import Event, Meta
from schemas.messages import CheckpointPublished, RunStarted, UpdatePlanned
from schemas.outcomes import CheckpointReason, Role
from schemas.science import TrainingRules
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import Answer
from services.kernel.errors import Unreadable
from services.kernel.meter import Watch
from services.kernel.models.checkpoint import Checkpoint
from services.trainer.learner.rollouts import read_groups
from services.trainer.learner.step import Metrics, NonFiniteGradientError, NoSignalError, Settings, update


class TrainerHandler:
    """Same inputs, same digest: a planned update computed twice gives the same checkpoint."""

    def __init__(self, artifacts: ArtifactStore, rules: TrainingRules, temperature: float) -> None:
        self._artifacts = artifacts
        self._rules = rules
        self._temperature = temperature

    async def handle(self, event: Event, try_: int) -> Sequence[Answer]:
        watch, began_s = Watch(), time.process_time()
        match event.body:
            case RunStarted():
                answer = self._cold_start(event.body)
            case UpdatePlanned():
                answer = await asyncio.to_thread(self.update, event.body)
            case _:
                raise Unreadable(f"{event.body.name} is no work for the trainer")
        meta = Meta(started_ns=watch.started_ns, wall_s=watch.wall_s(), cpu_s=time.process_time() - began_s)
        return [Answer(answer, meta)]

    def _cold_start(self, run: RunStarted) -> CheckpointPublished:
        self._artifacts.get(run.checkpoint)
        return CheckpointPublished(
            role=Role.solver,
            checkpoint_version=0,
            checkpoint=run.checkpoint,
            state=None,
            parent=None,
            reason=CheckpointReason.cold_start,
            metrics={},
            recipe=run.science.model,
        )

    def update(self, plan: UpdatePlanned) -> CheckpointPublished:
        """Blocking: the next checkpoint, stored durably before it is named."""
        if not plan.groups:
            return self._same(plan, CheckpointReason.no_signal, {})
        try:
            learned = update(
                self._checkpoint(plan.checkpoint),
                None if plan.state is None else self._artifacts.get(plan.state),
                read_groups(self._artifacts, plan.groups),
                self._settings(plan),
            )
        except NoSignalError:
            return self._same(plan, CheckpointReason.no_signal, {})
        except NonFiniteGradientError as error:
            return self._same(plan, CheckpointReason.non_finite, {"optimiser_step": float(error.optimiser_step)})
        checkpoint, state = self._artifacts.put_many([learned.checkpoint.archive, learned.state])
        return self._published(plan, checkpoint, state, CheckpointReason.update, _metrics(learned.metrics))

    def _checkpoint(self, digest: str) -> Checkpoint:
        return Checkpoint.from_archive(self._artifacts.get(digest))

    def _settings(self, plan: UpdatePlanned) -> Settings:
        return Settings(
            objective=self._rules.objective,
            learning_rate=self._rules.learning_rate,
            tv_max=self._rules.tv_max,
            grad_norm_max=self._rules.grad_norm_max,
            minibatches=self._rules.minibatches,
            temperature=self._temperature,
            seed=plan.seed,
        )

    def _same(self, plan: UpdatePlanned, reason: CheckpointReason, metrics: dict[str, float]) -> CheckpointPublished:
        return self._published(plan, plan.checkpoint, plan.state, reason, metrics)

    def _published(
        self,
        plan: UpdatePlanned,
        checkpoint: str,
        state: str | None,
        reason: CheckpointReason,
        metrics: dict[str, float],
    ) -> CheckpointPublished:
        return CheckpointPublished(
            round=plan.round,
            role=plan.role,
            checkpoint_version=plan.update,
            checkpoint=checkpoint,
            state=state,
            parent=plan.checkpoint,
            reason=reason,
            metrics=metrics,
        )


def _metrics(metrics: Metrics) -> dict[str, float]:
    return {name: float(value) for name, value in asdict(metrics).items()}
