"""Reads a Llama from a GGUF file (version 3; F32, Q4_1 and Q8_0 tensors) into HF layout. Hostile bytes give ModelError.

Source: the GGUF specification, ggml-org/ggml docs/gguf.md.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from services.kernel.models.config import LlamaConfig, ModelError, read_config, write_config

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_COUNT_MAX = 2**20
_BLOCK = 32
_F32, _Q4_1, _Q8_0 = 0, 3, 8
_BLOCK_TYPES = {
    _F32: np.dtype("<f4"),
    _Q4_1: np.dtype([("scale", "<f2"), ("least", "<f2"), ("pairs", "u1", _BLOCK // 2)]),
    _Q8_0: np.dtype([("scale", "<f2"), ("values", "i1", _BLOCK)]),
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@dataclass(frozen=True)
class Gguf:
    facts: Mapping[str, object]
    """Key-value pairs; arrays are lists."""
    tensors: Mapping[str, Tensor]
    """float32, by the file's own names, in torch's order of dimensions."""


class _Reader:
    """A cursor that never runs over the end."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self.raw) - self.at:
            raise ModelError(f"GGUF: {count} bytes wanted at {self.at}, but the file ends at {len(self.raw)}")
        self.at += count
        return self.raw[self.at - count : self.at]

    def scalar(self, code: str) -> int:
        (value,) = struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))
        return value  # type: ignore[no-any-return]

    def count(self, code: str = "Q") -> int:
        value = self.scalar(code)
        if value > _COUNT_MAX:
            raise ModelError(f"GGUF: a count of {value} at {self.at} is out of bounds")
        return value

    def text(self) -> str:
        try:
            return self.take(self.count()).decode()
        except UnicodeDecodeError as error:
            raise ModelError(f"GGUF: text before {self.at} is not UTF-8") from error

    def value(self, kind: int) -> object:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            of = self.scalar("I")
            if of == _ARRAY:
                raise ModelError("GGUF: nested arrays are not supported")
            return [self.value(of) for _ in range(self.count())]
        if kind not in _SCALARS:
            raise ModelError(f"GGUF: value type {kind} is unknown")
        return self.scalar(_SCALARS[kind])


def read_gguf(raw: bytes) -> Gguf:
    reader = _Reader(raw)
    if reader.take(4) != b"GGUF" or reader.scalar("I") != 3:
        raise ModelError("not a GGUF file of version 3")
    tensor_count, fact_count = reader.count(), reader.count()
    facts = {reader.text(): reader.value(reader.scalar("I")) for _ in range(fact_count)}
    found = []
    for _ in range(tensor_count):
        name = reader.text()
        shape = [reader.count() for _ in range(reader.count("I"))]
        found.append((name, shape, reader.scalar("I"), reader.scalar("Q")))
    align = facts.get("general.alignment", 32)
    if not isinstance(align, int) or not 1 <= align <= 4096:
        raise ModelError("GGUF: general.alignment is out of bounds")
    start = math.ceil(reader.at / align) * align
    return Gguf(facts, {name: _tensor(reader, name, shape, kind, start + at) for name, shape, kind, at in found})


def _tensor(reader: _Reader, name: str, shape: list[int], kind: int, at: int) -> Tensor:
    if kind not in _BLOCK_TYPES:
        raise ModelError(f"GGUF: {name} has type {kind}; only F32, Q4_1 and Q8_0 are supported")
    size = math.prod(shape)
    if not shape or (kind != _F32 and shape[0] % _BLOCK):
        raise ModelError(f"GGUF: {name} has shape {shape}, which does not fall into blocks")
    dtype = _BLOCK_TYPES[kind]
    reader.at = at
    blocks = np.frombuffer(reader.take(size // (1 if kind == _F32 else _BLOCK) * dtype.itemsize), dtype)
    if kind == _F32:
        values = blocks.astype(np.float32)
    elif kind == _Q8_0:
        values = blocks["values"] * blocks["scale"].astype(np.float32)[:, None]
    else:
        # The low halves of a block's bytes come before all its high halves.
        levels = np.concatenate((blocks["pairs"] & 15, blocks["pairs"] >> 4), axis=1)
        values = levels * blocks["scale"].astype(np.float32)[:, None] + blocks["least"].astype(np.float32)[:, None]
    return torch.from_numpy(np.ascontiguousarray(values, np.float32).reshape(shape[::-1]))


def llama_config(gguf: Gguf) -> LlamaConfig:
    """Raises ModelError where a fact is missing or out of bounds."""

    def fact(name: str) -> float:
        value = gguf.facts.get(name)
        if not isinstance(value, int | float):
            raise ModelError(f"GGUF: {name} is missing or no number")
        return value

    heads, width = int(fact("llama.attention.head_count")), int(fact("llama.embedding_length"))
    config = LlamaConfig(
        vocab_size=int(fact("llama.vocab_size")),
        hidden_size=width,
        intermediate_size=int(fact("llama.feed_forward_length")),
        num_hidden_layers=int(fact("llama.block_count")),
        num_attention_heads=heads,
        num_key_value_heads=int(fact("llama.attention.head_count_kv")),
        head_dim=int(fact("llama.rope.dimension_count")),
        max_position_embeddings=int(fact("llama.context_length")),
        # The file keeps a float32 of a decimal constant.
        rms_norm_eps=float(f"{fact('llama.attention.layer_norm_rms_epsilon'):.6g}"),
        rope_theta=float(fact("llama.rope.freq_base")),
        bos_token_id=int(fact("tokenizer.ggml.bos_token_id")),
        eos_token_id=int(fact("tokenizer.ggml.eos_token_id")),
    )
    return read_config(write_config(config))


def llama_weights(gguf: Gguf, config: LlamaConfig) -> dict[str, Tensor]:
    """Names of HF layout; rows of queries and keys back in the order of halves, which GGUF interleaves."""
    names = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    for layer in range(config.num_hidden_layers):
        names |= {f"blk.{layer}.{a}.weight": f"model.layers.{layer}.{b}.weight" for a, b in _LAYER_NAMES.items()}
    if gguf.tensors.keys() != names.keys():
        raise ModelError(f"GGUF: not the tensors of a tied Llama: {sorted(gguf.tensors.keys() ^ names.keys())[:3]}")
    weights = {}
    for name, tensor in gguf.tensors.items():
        if name.endswith(("attn_q.weight", "attn_k.weight")):
            rows, columns = tensor.shape
            pairs = tensor.view(rows // config.head_dim, config.head_dim // 2, 2, columns)
            tensor = pairs.transpose(1, 2).reshape(rows, columns)
        weights[names[name]] = tensor
    return weights
