"""The built-in engine: torch on one CPU thread. What it computes depends on the request alone, bit for bit.

Every decode step has the shape [rows, 1] over a cache of fixed length, and prompts go in by chunks of a fixed size;
rows that have ended stay in as dummies. So neither a row's content nor timing can change the shape of another row's
arithmetic.
"""

import hashlib
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from services.kernel.models.llama import Llama, Rotation
from services.kernel.models.protocol import Sampled

CHUNK_TOKENS = 32


def one_thread() -> None:
    """More threads change the bits and are slower as soon as anything else runs.

    The setting belongs to the calling thread: call it wherever computing begins.
    """
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)


class TorchEngine:
    """Serves one checkpoint on the CPU. Its sessions may interleave; they share nothing that changes."""

    deterministic = True

    def __init__(self, model: Llama, *, checkpoint: str, stop_ids: frozenset[int]) -> None:
        one_thread()
        self.model = model
        self.checkpoint = checkpoint
        self.stop_ids = stop_ids
        self.rotation = Rotation.of(model.config, model.config.max_position_embeddings)

    def open(
        self, prompts: list[list[int]], *, seed: int, temperature: float, new_tokens_max: int, context_max: int
    ) -> "TorchSession":
        """As `protocol.Engine.open`. Raises ValueError for a request that no session can serve."""
        one_thread()
        config = self.model.config
        if not prompts or not all(prompts):
            raise ValueError("every conversation needs a prompt of at least one token")
        if any(not 0 <= token < config.vocab_size for row in prompts for token in row):
            raise ValueError(f"a prompt holds a token outside 0..{config.vocab_size - 1}")
        if not temperature > 0 or new_tokens_max < 1 or not 0 <= seed < 2**63:
            raise ValueError("temperature must be > 0, new_tokens_max >= 1, seed in 0..2**63-1")
        if not 1 <= context_max <= config.max_position_embeddings:
            raise ValueError(f"context_max is {context_max}; this model takes 1..{config.max_position_embeddings}")
        return TorchSession(self, prompts, _Request(seed, temperature, new_tokens_max, context_max))


@dataclass(frozen=True)
class _Request:
    seed: int
    temperature: float
    new_tokens_max: int
    context_max: int


class TorchSession:
    """One group over one preallocated key-value cache."""

    def __init__(self, engine: TorchEngine, prompts: list[list[int]], request: _Request) -> None:
        self._engine = engine
        self._request = request
        rows = len(prompts)
        self._cache = _Cache(engine.model, rows, request.context_max)
        self._pending: list[list[int]] = [[] for _ in prompts]
        """Tokens of each row that the cache does not hold yet. The last one is fed by the first decode step."""
        self._active = [True] * rows
        self._overflow = [False] * rows
        self.extend(prompts)

    @torch.inference_mode()
    def extend(self, rows: list[list[int]]) -> None:
        one_thread()
        if len(rows) != len(self._pending):
            raise ValueError(f"{len(rows)} rows given to a session of {len(self._pending)}")
        for i, row in enumerate(rows):
            self._active[i] = self._active[i] and bool(row)
            if not self._active[i]:
                self._pending[i] = []
                continue
            # At least one token of answer must fit behind what is heard.
            if self._cache.lengths[i] + len(self._pending[i]) + len(row) >= self._request.context_max:
                self._overflow[i] = True
                self._pending[i] = []
                continue
            self._pending[i] += row
        self._cache.feed([pending[:-1] for pending in self._pending], self._engine)
        self._pending = [pending[-1:] for pending in self._pending]

    @torch.inference_mode()
    def generate(self, turn: int) -> list[Sampled | None]:
        one_thread()
        request, rows = self._request, len(self._pending)
        uniforms = _uniforms(request.seed, turn, rows, request.new_tokens_max)
        live = [active and not over for active, over in zip(self._active, self._overflow, strict=True)]
        tokens: list[list[int]] = [[] for _ in range(rows)]
        logprobs: list[list[float]] = [[] for _ in range(rows)]
        finished = [False] * rows
        fed = [pending[0] if pending else 0 for pending in self._pending]
        for step in range(request.new_tokens_max):
            if not any(live):
                break
            hidden = self._cache.step(fed, live, self._engine)
            picked, scores = _sample(self._engine.model.logits(hidden), uniforms[:, step], request.temperature)
            for i, token in enumerate(picked):
                if not live[i]:
                    continue
                fed[i] = token
                tokens[i].append(token)
                logprobs[i].append(scores[i])
                finished[i] = token in self._engine.stop_ids
                if not finished[i] and self._cache.lengths[i] + 1 >= request.context_max:
                    self._overflow[i] = True
                live[i] = not finished[i] and not self._overflow[i]
        self._pending = [row[-1:] for row in tokens]
        return [
            Sampled(tuple(tokens[i]), tuple(logprobs[i]), finished[i], self._overflow[i]) if self._active[i] else None
            for i in range(rows)
        ]


class _Cache:
    """Keys and values of all rows, [layers, rows, positions, 2 * K * D], and how many positions of each row count."""

    def __init__(self, model: Llama, rows: int, context_max: int) -> None:
        config = model.config
        self.lengths = [0] * rows
        self._kv = config.num_key_value_heads * config.head_dim
        self._positions = context_max + CHUNK_TOKENS
        self._store = torch.zeros(config.num_hidden_layers, rows, self._positions, 2 * self._kv)
        self._grouped = config.num_attention_heads != config.num_key_value_heads
        self._head_dim = config.head_dim

    def feed(self, rows: list[list[int]], engine: TorchEngine) -> None:
        """Adds the rows' tokens, chunk by chunk. Equal rows into an empty cache are computed once."""
        if len(rows) > 1 and not any(self.lengths) and all(row == rows[0] for row in rows):
            store, self._store = self._store, self._store[:, :1]
            self._feed(rows[:1], [0], engine)
            store[:, 1:] = self._store
            self._store = store
            self.lengths = [len(rows[0])] * len(rows)
            return
        self._feed(rows, list(self.lengths), engine)
        self.lengths = [length + len(row) for length, row in zip(self.lengths, rows, strict=True)]

    def _feed(self, rows: list[list[int]], lengths: list[int], engine: TorchEngine) -> None:
        for start in range(0, max(map(len, rows)), CHUNK_TOKENS):
            parts = [row[start : start + CHUNK_TOKENS] for row in rows]
            padded = [part + [0] * (CHUNK_TOKENS - len(part)) for part in parts]
            self._run(torch.tensor(padded), torch.tensor(lengths), engine)
            lengths = [length + len(part) for length, part in zip(lengths, parts, strict=True)]

    def step(self, tokens: list[int], live: list[bool], engine: TorchEngine) -> Tensor:
        """Feeds one token a row and gives its hidden states [rows, d]; the tokens of rows not `live` leave no trace."""
        hidden = self._run(torch.tensor(tokens).unsqueeze(1), torch.tensor(self.lengths), engine)
        self.lengths = [length + alive for length, alive in zip(self.lengths, live, strict=True)]
        return hidden[:, 0]

    def _run(self, tokens: Tensor, lengths: Tensor, engine: TorchEngine) -> Tensor:
        rows, width = tokens.shape
        positions = lengths.unsqueeze(1) + torch.arange(width)
        seen = (torch.arange(self._positions) <= positions.unsqueeze(-1)).unsqueeze(1)
        mask = torch.zeros(seen.shape).masked_fill_(~seen, float("-inf"))
        row_index = torch.arange(rows).unsqueeze(1)
        rotation = engine.rotation.at(positions.clamp(max=engine.model.config.max_position_embeddings - 1))

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            store = self._store[layer]
            store[row_index, positions] = torch.cat((k, v), 2).flatten(2)
            keys, values = store.view(rows, self._positions, 2, -1, self._head_dim).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(
                q.transpose(1, 2), keys, values, attn_mask=mask, enable_gqa=self._grouped
            )
            return mixed.transpose(1, 2)

        return engine.model.hidden(tokens, rotation, attend)


def _uniforms(seed: int, turn: int, rows: int, count: int) -> Tensor:
    """All draws of one turn up front, so that no draw depends on when a row ends. 24-bit fractions in [0, 1)."""
    mixed = hashlib.sha256(f"{seed}/{turn}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(mixed[:8]) >> 1)
    return torch.rand(rows, count, generator=generator)


def _sample(logits: Tensor, uniforms: Tensor, temperature: float) -> tuple[list[int], list[float]]:
    """Inverse cumulative distribution at each row's uniform; in float64, so that a zero probability is never hit."""
    scores = F.log_softmax(logits if temperature == 1 else logits / temperature, -1)
    cumulative = scores.double().exp_().cumsum(-1)
    target = uniforms.double().mul_(cumulative[:, -1]).unsqueeze(1)
    picked = torch.searchsorted(cumulative, target, right=True)
    return picked[:, 0].tolist(), scores.gather(1, picked)[:, 0].tolist()
