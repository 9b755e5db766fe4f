"""One update of the policy: recorded groups in, weights and trainer state out. A pure function, on one thread."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from services.kernel.models.checkpoint import Checkpoint
from services.kernel.models.engine import one_thread
from services.kernel.models.llama import Llama, Rotation
from services.kernel.models.trajectory import Group
from services.trainer.learner.adamw import AdamW, clipped
from services.trainer.learner.objectives import Surrogate, centred_advantages, dppo, grpo
from services.trainer.learner.packing import Batch, Row, batches, learned_tokens, row_of


@dataclass(frozen=True)
class Settings:
    """Of one update."""

    objective: Literal["dppo", "grpo"] = "dppo"
    learning_rate: float = 5e-4
    tv_max: float = 0.1
    grad_norm_max: float = 1.0
    epochs: int = 1
    minibatches: int = 1
    """Optimiser steps of an epoch, each over an equal share of the rows, drawn by `seed`."""
    temperature: float = 1.0
    """That of the sampler: log-probabilities are compared under the same distribution."""
    micro_batch_tokens_max: int = 4096
    seed: int = 0


@dataclass(frozen=True)
class Metrics:
    """Over all optimiser steps of the update; means are by learned token."""

    reward_mean: float
    groups_used: int
    rows: int
    tokens: int
    """Learned tokens of one epoch."""
    loss: float
    grad_norm: float
    """Largest before clipping."""
    ratio_mean: float
    log_ratio_max: float
    kl: float
    """Estimate of KL(sampler, trainer) by (ratio - 1) - log ratio."""
    masked_share: float
    """Learned tokens that the trust region or the clip left out."""
    entropy: float


@dataclass(frozen=True)
class Update:
    checkpoint: Checkpoint
    state: bytes
    """Archive of the optimiser's state."""
    metrics: Metrics


class NonFiniteGradientError(ArithmeticError):
    """The loss or a gradient is not a finite number; nothing was stepped."""

    def __init__(self, optimiser_step: int, loss: float, grad_norm: float, weights: tuple[str, ...]) -> None:
        super().__init__(f"loss {loss}, gradient norm {grad_norm} at optimiser step {optimiser_step}; in {weights[:3]}")
        self.optimiser_step = optimiser_step
        self.loss = loss
        self.grad_norm = grad_norm
        self.weights = weights
        """Names of the weights whose gradient is at fault, sorted."""


class NoSignalError(ValueError):
    """No group varies, so there is nothing to learn from: publish the same weights instead."""


def update(checkpoint: Checkpoint, state: bytes | None, groups: Sequence[Group], settings: Settings) -> Update:
    """The next checkpoint. `state` is None before the first update.

    Raises:
        NoSignalError: every advantage is zero or every answer was cut off.
        NonFiniteGradientError: with what is needed to report it.
        ModelError: checkpoint or state are damaged.
    """
    one_thread()
    weights = checkpoint.weights()
    optimiser = AdamW.load(state, weights) if state is not None else AdamW.fresh(weights)
    rows = [row for group in groups for row in _rows(group, settings)]
    if not any(row.advantage and learned_tokens(row) for row in rows):
        raise NoSignalError("no group with different rewards and a finished answer")
    rotation = Rotation.of(checkpoint.config, max(len(row.tokens) for row in rows))
    totals = _Totals()
    for part in _minibatches(rows, settings):
        gradients, loss = _gradients(checkpoint, weights, part, rotation, settings, totals)
        scaled, norm = clipped(gradients, norm_max=settings.grad_norm_max)
        if not (math.isfinite(norm) and math.isfinite(loss)):
            bad = sorted(name for name, gradient in gradients.items() if not bool(torch.isfinite(gradient).all()))
            raise NonFiniteGradientError(optimiser.steps, loss, norm, tuple(bad))
        weights, optimiser = optimiser.stepped(weights, scaled, rate=settings.learning_rate)
        totals.stepped(loss, norm)
    rewards = [t.reward for group in groups for t in group.trajectories if not t.masked]
    metrics = totals.metrics(settings.epochs, sum(rewards) / len(rewards), len(groups), rows)
    return Update(Checkpoint.of(checkpoint, weights), optimiser.save(), metrics)


def _rows(group: Group, settings: Settings) -> list[Row]:
    kept = [trajectory for trajectory in group.trajectories if not trajectory.masked]
    if not kept:
        return []
    reward = torch.tensor([trajectory.reward for trajectory in kept], dtype=torch.float64)
    advantages = centred_advantages(reward, by_std=settings.objective == "grpo").tolist()
    return [row_of(trajectory, advantage) for trajectory, advantage in zip(kept, advantages, strict=True)]


def _minibatches(rows: list[Row], settings: Settings) -> list[list[Row]]:
    if settings.minibatches == 1:
        return [rows] * settings.epochs
    parts: list[list[Row]] = []
    for epoch in range(settings.epochs):
        order = list(rows)
        random.Random(f"{settings.seed}/{epoch}").shuffle(order)  # noqa: S311 a seeded order, not a secret
        parts += [order[i :: settings.minibatches] for i in range(settings.minibatches)]
    return [part for part in parts if any(learned_tokens(row) for row in part)]


def _gradients(
    checkpoint: Checkpoint,
    weights: Mapping[str, Tensor],
    rows: list[Row],
    rotation: Rotation,
    settings: Settings,
    totals: "_Totals",
) -> tuple[dict[str, Tensor], float]:
    """Of the mean over the learned tokens of `rows`, micro-batch by micro-batch."""
    leaves = {name: weight.detach().clone().requires_grad_() for name, weight in weights.items()}
    count = sum(learned_tokens(row) for row in rows)
    loss = 0.0
    for batch in batches(rows, tokens_max=settings.micro_batch_tokens_max):
        surrogate, entropy = _surrogate(Llama(checkpoint.config, leaves), batch, rotation, settings)
        part = surrogate.loss_N_T.sum() / count
        part.backward()  # type: ignore[no-untyped-call]
        loss += float(part.detach())
        totals.saw(surrogate, batch, entropy)
    return {name: leaf.grad if leaf.grad is not None else torch.zeros_like(leaf) for name, leaf in leaves.items()}, loss


def _surrogate(model: Llama, batch: Batch, rotation: Rotation, settings: Settings) -> tuple[Surrogate, float]:
    hidden = model.causal(batch.input_N_T, rotation)
    # The head is computed where it is learned from only: most tokens are prompt, output or padding.
    scores = F.log_softmax(model.logits(hidden[batch.mask_N_T]) / settings.temperature, -1)
    picked = scores.gather(1, batch.target_N_T[batch.mask_N_T].unsqueeze(1)).squeeze(1)
    logp = torch.zeros(batch.mask_N_T.shape).masked_scatter(batch.mask_N_T, picked)
    with torch.no_grad():
        entropy = float(-(scores.exp() * scores).sum())
    mask, behaviour, advantage = batch.mask_N_T, batch.behaviour_N_T, batch.advantage_N_T
    if settings.objective == "grpo":
        return grpo(logp, behaviour, advantage, mask), entropy
    return dppo(logp, behaviour, advantage, mask, tv_max=settings.tv_max), entropy


class _Totals:
    """Sums behind the metrics."""

    def __init__(self) -> None:
        self.tokens = self.kept = self.ratio = self.kl = self.entropy = self.log_ratio_max = 0.0
        self.losses: list[float] = []
        self.norms: list[float] = []

    def saw(self, surrogate: Surrogate, batch: Batch, entropy: float) -> None:
        delta = surrogate.log_ratio_N_T[batch.mask_N_T].double()
        self.tokens += delta.numel()
        self.kept += float(surrogate.kept_N_T.sum())
        self.ratio += float(delta.exp().sum())
        self.kl += float((delta.expm1() - delta).sum())
        self.log_ratio_max = max(self.log_ratio_max, float(delta.abs().max()))
        self.entropy += entropy

    def stepped(self, loss: float, norm: float) -> None:
        self.losses.append(loss)
        self.norms.append(norm)

    def metrics(self, epochs: int, reward_mean: float, groups: int, rows: list[Row]) -> Metrics:
        return Metrics(
            reward_mean=reward_mean,
            groups_used=groups,
            rows=len(rows),
            tokens=int(self.tokens) // epochs,
            loss=sum(self.losses) / len(self.losses),
            grad_norm=max(self.norms),
            ratio_mean=self.ratio / self.tokens,
            log_ratio_max=self.log_ratio_max,
            kl=self.kl / self.tokens,
            masked_share=1 - self.kept / self.tokens,
            entropy=self.entropy / self.tokens,
        )
