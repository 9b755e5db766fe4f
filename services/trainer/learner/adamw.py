"""AdamW whose state is named tensors and a count, so that it can be saved, compared and resumed bit for bit."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import torch
from torch import Tensor

from services.kernel.archive import ArchiveError, FileEntry, pack, unpack
from services.kernel.models.checkpoint import read_tensors, write_tensors
from services.kernel.models.config import ModelError

BETA_MEAN, BETA_SQUARE, EPSILON = 0.9, 0.95, 1e-8


class _Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    steps: int
    version: str = "adamw-1"


@dataclass(frozen=True)
class AdamW:
    """Moments by weight name."""

    steps: int
    mean: Mapping[str, Tensor]
    square: Mapping[str, Tensor]

    @classmethod
    def fresh(cls, weights: Mapping[str, Tensor]) -> "AdamW":
        zeros = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        return cls(0, zeros, {name: zero.clone() for name, zero in zeros.items()})

    @torch.no_grad()
    def stepped(
        self, weights: Mapping[str, Tensor], gradients: Mapping[str, Tensor], *, rate: float
    ) -> tuple[dict[str, Tensor], "AdamW"]:
        """New weights and state; nothing given is changed. With rate 0 the weights keep their bytes."""
        steps = self.steps + 1
        mean, square, moved = {}, {}, {}
        for name, weight in weights.items():
            gradient = gradients[name]
            mean[name] = torch.lerp(self.mean[name], gradient, 1 - BETA_MEAN)
            square[name] = torch.lerp(self.square[name], gradient * gradient, 1 - BETA_SQUARE)
            direction = mean[name] / (1 - BETA_MEAN**steps)
            direction /= (square[name] / (1 - BETA_SQUARE**steps)).sqrt_().add_(EPSILON)
            moved[name] = torch.add(weight, direction, alpha=-rate)
        return moved, AdamW(steps, mean, square)

    def save(self) -> bytes:
        """A canonical archive of one json and one safetensors file."""
        moments = {f"mean.{name}": tensor for name, tensor in self.mean.items()}
        moments |= {f"square.{name}": tensor for name, tensor in self.square.items()}
        return pack(
            {
                "state.json": FileEntry(msgspec.json.encode(_Counts(self.steps))),
                "state.safetensors": FileEntry(write_tensors(moments)),
            }
        )

    @classmethod
    def load(cls, raw: bytes, weights: Mapping[str, Tensor]) -> "AdamW":
        """Raises ModelError for a state that is damaged or belongs to other weights."""
        try:
            files = unpack(raw)
            counts = msgspec.json.decode(files["state.json"].content, type=_Counts)
            moments = read_tensors(files["state.safetensors"].content)
        except (ArchiveError, KeyError, msgspec.DecodeError) as error:
            raise ModelError(f"trainer state: {error}") from error
        if counts.version != "adamw-1" or counts.steps < 0:
            raise ModelError(f"trainer state: version {counts.version!r} or steps {counts.steps} not understood")
        wanted = {f"{part}.{name}": weight.shape for part in ("mean", "square") for name, weight in weights.items()}
        if {name: tensor.shape for name, tensor in moments.items()} != wanted:
            raise ModelError("trainer state: its tensors are not those of these weights")
        mean = {name: moments[f"mean.{name}"] for name in weights}
        return cls(counts.steps, mean, {name: moments[f"square.{name}"] for name in weights})


def clipped(gradients: Mapping[str, Tensor], *, norm_max: float) -> tuple[dict[str, Tensor], float]:
    """Gradients scaled down to a common norm of at most `norm_max`, and the norm before. NaN stays NaN."""
    norm = torch.stack([gradients[name].square().sum() for name in sorted(gradients)]).sum().sqrt()
    scale = (norm_max / (norm + 1e-6)).clamp(max=1.0)
    return {name: gradient * scale for name, gradient in gradients.items()}, float(norm)
