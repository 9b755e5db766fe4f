"""Muon: momentum whose matrices are made orthogonal before they step.

Source: Keller Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024).
"""

from collections.abc import Mapping

import torch
from torch import Tensor

MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5


def orthogonal(matrix: Tensor) -> Tensor:
    """A matrix with the same singular vectors and singular values near 1."""
    a, b, c = NEWTON_SCHULZ
    tall = matrix.shape[0] > matrix.shape[1]
    x: Tensor = (matrix.T if tall else matrix) / (matrix.norm() + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if tall else x


class Muon:
    """For the matrices of the blocks only; embeddings and norms belong to AdamW."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.names = tuple(name for name, weight in weights.items() if weight.dim() == 2 and "embed" not in name)
        self._momentum = {name: torch.zeros_like(weights[name]) for name in self.names}

    @torch.no_grad()
    def stepped(
        self, weights: Mapping[str, Tensor], gradients: Mapping[str, Tensor], *, rate: float, decay: float
    ) -> dict[str, Tensor]:
        """The matrices after one step with Nesterov momentum."""
        moved = {}
        for name in self.names:
            weight, gradient = weights[name], gradients[name]
            momentum = self._momentum[name].mul_(MOMENTUM).add_(gradient)
            direction = orthogonal(gradient + MOMENTUM * momentum)
            scale = max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
            moved[name] = torch.add(weight * (1 - rate * decay), direction, alpha=-rate * scale)
        return moved
