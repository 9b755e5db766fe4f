"""A seeded model of a few thousand parameters on the real code, for tests that need a model and not a good one."""

from functools import cache

import msgspec
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from services.kernel.models.checkpoint import Checkpoint, write_tensors
from services.kernel.models.config import LlamaConfig, write_config
from services.kernel.models.llama import initial_weights
from services.kernel.models.template import TemplateNames

TINY = LlamaConfig(
    vocab_size=272,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=256,
    rms_norm_eps=1e-5,
    rope_theta=10_000.0,
    bos_token_id=0,
    eos_token_id=2,
)


@cache
def tiny_tokenizer() -> bytes:
    """Bytes, the special tokens and a handful of merges."""
    names = TemplateNames()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(" ?[a-z]+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TINY.vocab_size,
        special_tokens=list(names.specials),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["cp kilo lima", "mv kilo lima", "rm lima"] * 4, trainer)
    return tokenizer.to_str(pretty=False).encode()


@cache
def tiny_checkpoint(seed: int = 0) -> Checkpoint:
    return Checkpoint(
        {
            "config.json": write_config(TINY),
            "model.safetensors": write_tensors({k: v * 4 for k, v in initial_weights(TINY, seed).items()}),
            "template.json": msgspec.json.encode(TemplateNames()),
            "tokenizer.json": tiny_tokenizer(),
        }
    )
