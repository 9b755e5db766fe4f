"""The Llama transformer on torch: RMSNorm, rotary positions, SwiGLU, grouped-query attention, tied head; fp32.

Weights carry the names of transformers' `LlamaForCausalLM`, so that one file serves torch, transformers and vLLM.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from services.kernel.models.config import LlamaConfig

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, queries [N, T, H, D], keys [N, T, K, D], values [N, T, K, D]) -> attended values [N, T, H, D]."""


class Layer(NamedTuple):
    """The weights of one block, with the projections of equal input joined."""

    norm_attention: Tensor
    query_key_value: Tensor
    output: Tensor
    norm_mlp: Tensor
    gate_up: Tensor
    down: Tensor


def shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every weight of the layout."""
    d, ff = config.hidden_size, config.intermediate_size
    q, kv = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, d), "model.norm.weight": (d,)}
    for i in range(config.num_hidden_layers):
        at = f"model.layers.{i}."
        found |= {
            at + "input_layernorm.weight": (d,),
            at + "self_attn.q_proj.weight": (q, d),
            at + "self_attn.k_proj.weight": (kv, d),
            at + "self_attn.v_proj.weight": (kv, d),
            at + "self_attn.o_proj.weight": (d, q),
            at + "post_attention_layernorm.weight": (d,),
            at + "mlp.gate_proj.weight": (ff, d),
            at + "mlp.up_proj.weight": (ff, d),
            at + "mlp.down_proj.weight": (d, ff),
        }
    return found


def initial_weights(config: LlamaConfig, seed: int) -> dict[str, Tensor]:
    """Random weights: normal with std 0.02 (residual outputs scaled down by depth), norms one."""
    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, Tensor] = {}
    for name, shape in sorted(shapes(config).items()):
        if len(shape) == 1:
            weights[name] = torch.ones(shape)
            continue
        residual = name.endswith(("o_proj.weight", "down_proj.weight"))
        std = 0.02 / (2 * config.num_hidden_layers) ** 0.5 if residual else 0.02
        weights[name] = torch.randn(shape, generator=generator) * std
    return weights


@dataclass(frozen=True)
class Rotation:
    """Cosines and sines of the rotary positions, [positions, D]."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, config: LlamaConfig, positions: int) -> "Rotation":
        half = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
        angles = torch.outer(torch.arange(positions, dtype=torch.float64), config.rope_theta**-half)
        # The second half of a sine row belongs to the first half of the vector, which enters negated.
        cos = torch.cat((angles.cos(), angles.cos()), -1)
        sin = torch.cat((-angles.sin(), angles.sin()), -1)
        return cls(cos.float(), sin.float())

    def at(self, positions: Tensor) -> "Rotation":
        """Broadcastable over heads: [..., 1, D]."""
        return Rotation(self.cos[positions].unsqueeze(-2), self.sin[positions].unsqueeze(-2))

    def turn(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        return torch.addcmul(x * self.cos, torch.roll(x, half, -1), self.sin)


class Llama:
    """Weights joined for computing; gradients flow back to the tensors given."""

    def __init__(self, config: LlamaConfig, weights: Mapping[str, Tensor]) -> None:
        self.config = config
        self.embedding = weights["model.embed_tokens.weight"]
        self.norm = weights["model.norm.weight"]
        self.layers = tuple(_layer(weights, f"model.layers.{i}.") for i in range(config.num_hidden_layers))

    def hidden(self, tokens: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        """Last hidden states [N, T, d] of tokens [N, T]; what a token sees is up to `attend`."""
        config = self.config
        n, t = tokens.shape
        heads, kv_heads, eps = config.num_attention_heads, config.num_key_value_heads, config.rms_norm_eps
        x = F.embedding(tokens, self.embedding)
        for i, layer in enumerate(self.layers):
            joined = F.linear(_rms_norm(x, layer.norm_attention, eps), layer.query_key_value)
            joined = joined.view(n, t, heads + 2 * kv_heads, config.head_dim)
            turned = rotation.turn(joined[:, :, : heads + kv_heads])
            mixed = attend(i, turned[:, :, :heads], turned[:, :, heads:], joined[:, :, heads + kv_heads :])
            x = x + F.linear(mixed.reshape(n, t, heads * config.head_dim), layer.output)
            gate, up = F.linear(_rms_norm(x, layer.norm_mlp, eps), layer.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        return _rms_norm(x, self.norm, eps)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.embedding)

    def causal(self, tokens: Tensor, rotation: Rotation) -> Tensor:
        """Hidden states where each token sees itself and what stands before it in its row; pad on the right."""
        grouped = self.config.num_attention_heads != self.config.num_key_value_heads

        def attend(_: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (part.transpose(1, 2) for part in (q, k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
            return mixed.transpose(1, 2)

        return self.hidden(tokens, rotation.at(torch.arange(tokens.shape[1])), attend)


def _layer(weights: Mapping[str, Tensor], at: str) -> Layer:
    query_key_value = torch.cat([weights[f"{at}self_attn.{part}_proj.weight"] for part in "qkv"])
    gate_up = torch.cat([weights[f"{at}mlp.{part}_proj.weight"] for part in ("gate", "up")])
    return Layer(
        weights[at + "input_layernorm.weight"],
        query_key_value,
        weights[at + "self_attn.o_proj.weight"],
        weights[at + "post_attention_layernorm.weight"],
        gate_up,
        weights[at + "mlp.down_proj.weight"],
    )


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, eps)
