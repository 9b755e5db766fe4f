"""Trajectories to padded rows: which tokens are learned from, and in which micro-batches. Deterministic."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.kernel.models.trajectory import Trajectory


@dataclass(frozen=True)
class Row:
    """One sequence and, for each token, whether the loss counts it."""

    tokens: tuple[int, ...]
    learned: tuple[bool, ...]
    behaviour: tuple[float, ...]
    """Recorded log-probabilities; 0 where not sampled."""
    advantage: float = 0.0


@dataclass(frozen=True)
class Batch:
    """Inputs and targets [N, T], shifted by one; padded on the right."""

    input_N_T: Tensor
    target_N_T: Tensor
    mask_N_T: Tensor
    behaviour_N_T: Tensor
    advantage_N_T: Tensor


def row_of(trajectory: Trajectory, advantage: float) -> Row:
    """Sampled tokens are learned, their end token included; a truncated answer stays in the context only."""
    tokens: list[int] = []
    learned: list[bool] = []
    behaviour: list[float] = []
    for segment in trajectory.segments:
        count = len(segment.token_ids)
        tokens += segment.token_ids
        learned += [segment.kind == "sampled" and not segment.truncated] * count
        behaviour += segment.logprobs or (0.0,) * count
    return Row(tuple(tokens), tuple(learned), tuple(behaviour), advantage)


def learned_tokens(row: Row) -> int:
    return sum(row.learned[1:])


def batches(rows: Sequence[Row], *, tokens_max: int) -> list[Batch]:
    """Longest rows first (ties in the order given), cut where the padded size would pass `tokens_max`."""
    ordered = sorted((row for row in rows if learned_tokens(row)), key=lambda row: -len(row.tokens))
    parts: list[list[Row]] = []
    for row in ordered:
        if parts and len(parts[-1][0].tokens) * (len(parts[-1]) + 1) <= tokens_max:
            parts[-1].append(row)
        else:
            parts.append([row])
    return [_pad(part) for part in parts]


def _pad(rows: list[Row]) -> Batch:
    shape = (len(rows), len(rows[0].tokens))
    tokens = torch.zeros(shape, dtype=torch.int64)
    mask = torch.zeros(shape, dtype=torch.bool)
    behaviour, advantage = torch.zeros(shape), torch.zeros(shape)
    for i, row in enumerate(rows):
        count = len(row.tokens)
        tokens[i, :count] = torch.tensor(row.tokens)
        mask[i, :count] = torch.tensor(row.learned)
        behaviour[i, :count] = torch.tensor(row.behaviour)
        advantage[i, :count] = row.advantage
    return Batch(tokens[:, :-1], tokens[:, 1:], mask[:, 1:], behaviour[:, 1:], advantage[:, 1:])
