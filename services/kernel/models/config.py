"""The `config.json` of a Llama checkpoint, as far as we compute with it."""

import msgspec


class ModelError(ValueError):
    """A checkpoint, tokenizer or template that cannot be used; says what is wrong with it."""


class LlamaConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Field names are those of transformers' `LlamaConfig`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    bos_token_id: int
    eos_token_id: int


class _Rope(msgspec.Struct):
    rope_theta: float
    rope_type: str = "default"


class _File(msgspec.Struct, kw_only=True):
    """What may stand in a file: a superset with transformers' defaults; unknown keys are descriptive and ignored."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    rope_theta: float | None = None
    rope_parameters: _Rope | None = None
    rope_scaling: dict[str, object] | None = None
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False
    bos_token_id: int = 1
    eos_token_id: int | list[int] = 2


_SIZE_MAX = {
    "vocab_size": 2**20,
    "hidden_size": 2**14,
    "intermediate_size": 2**16,
    "num_hidden_layers": 256,
    "num_attention_heads": 256,
    "num_key_value_heads": 256,
    "head_dim": 1024,
    "max_position_embeddings": 2**20,
}


def read_config(raw: bytes) -> LlamaConfig:
    """Raises ModelError for anything but a plain Llama with a tied head."""
    try:
        file = msgspec.json.decode(raw, type=_File)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ModelError(f"config.json: {error}") from error
    rope = file.rope_parameters
    problems = [
        text
        for wrong, text in (
            (file.model_type != "llama", f"model_type is {file.model_type!r}; only 'llama' is supported"),
            (file.hidden_act != "silu", f"hidden_act is {file.hidden_act!r}; only 'silu' is supported"),
            (file.attention_bias or file.mlp_bias, "biases are not supported"),
            (not file.tie_word_embeddings, "tie_word_embeddings must be true"),
            (file.rope_scaling is not None, "rope_scaling is not supported"),
            (rope is not None and rope.rope_type != "default", "only rope_type 'default' is supported"),
        )
        if wrong
    ]
    heads = file.num_attention_heads
    eos = file.eos_token_id
    config = LlamaConfig(
        vocab_size=file.vocab_size,
        hidden_size=file.hidden_size,
        intermediate_size=file.intermediate_size,
        num_hidden_layers=file.num_hidden_layers,
        num_attention_heads=heads,
        num_key_value_heads=heads if file.num_key_value_heads is None else file.num_key_value_heads,
        head_dim=(file.hidden_size // heads if heads > 0 else 0) if file.head_dim is None else file.head_dim,
        max_position_embeddings=file.max_position_embeddings,
        rms_norm_eps=file.rms_norm_eps,
        rope_theta=rope.rope_theta if rope is not None else (file.rope_theta or 10_000.0),
        bos_token_id=file.bos_token_id,
        eos_token_id=eos if isinstance(eos, int) else (eos[0] if eos else -1),
    )
    problems += _out_of_bounds(config)
    if problems:
        raise ModelError("config.json: " + "; ".join(problems))
    return config


def _out_of_bounds(config: LlamaConfig) -> list[str]:
    problems = [
        f"{name} is {getattr(config, name)}, not in 1..{bound}"
        for name, bound in _SIZE_MAX.items()
        if not 1 <= getattr(config, name) <= bound
    ]
    if not problems and (config.num_attention_heads % config.num_key_value_heads or config.head_dim % 2):
        problems.append("heads must be a multiple of key-value heads, and head_dim even")
    if not 0 < config.rms_norm_eps < 1 or not 1 < config.rope_theta < 1e9:
        problems.append("rms_norm_eps or rope_theta out of bounds")
    if not (0 <= config.bos_token_id < config.vocab_size and 0 <= config.eos_token_id < config.vocab_size):
        problems.append("bos_token_id or eos_token_id outside the vocabulary")
    return problems


def write_config(config: LlamaConfig) -> bytes:
    """Canonical bytes that transformers 4 and 5 and vLLM read alike."""
    plain = msgspec.to_builtins(config)
    plain |= {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "torch_dtype": "float32",
        "pad_token_id": config.bos_token_id,
    }
    return msgspec.json.format(msgspec.json.encode(dict(sorted(plain.items()))), indent=1) + b"\n"


NANO = LlamaConfig(
    vocab_size=1024,
    hidden_size=128,
    intermediate_size=384,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=32,
    max_position_embeddings=1024,
    rms_norm_eps=1e-5,
    rope_theta=10_000.0,
    bos_token_id=0,
    eos_token_id=2,
)
"""0.96 million parameters."""
