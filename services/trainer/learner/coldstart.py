"""The recipe of the `nano` checkpoint: supervised from random weights, the same bytes on the same kind of CPU."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import msgspec
import torch
import torch.nn.functional as F
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as FastTokenizer

from services.kernel.models.checkpoint import Checkpoint, write_tensors
from services.kernel.models.config import NANO, LlamaConfig, write_config
from services.kernel.models.engine import one_thread
from services.kernel.models.llama import Llama, Rotation, initial_weights
from services.kernel.models.shipped import BUILT, Built
from services.kernel.models.template import Template, TemplateNames
from services.kernel.models.trajectory import Trajectory
from services.kernel.skills.lexicon import seeded
from services.trainer.learner.adamw import AdamW, clipped
from services.trainer.learner.demonstrations import Mix, draw_task, segments
from services.trainer.learner.muon import Muon
from services.trainer.learner.packing import Batch, batches, row_of

Progress = Callable[[int, int, float], None]
"""(step, steps, loss)"""


@dataclass(frozen=True)
class Recipe:
    """Everything that the bytes of the checkpoint follow from, together with the code and the lexicon."""

    seed: int = 1
    steps: int = 1600
    batch_tokens: int = 2048
    matrix_rate: float = 0.02
    """Of Muon, for the matrices of the blocks."""
    matrix_decay: float = 0.1
    rest_rate: float = 3e-3
    """Of AdamW, for embeddings and norms."""
    warmup_steps: int = 50
    decay_share: float = 0.5
    """Of the steps, at the end, over which the rates fall linearly to a hundredth."""
    grad_norm_max: float = 1.0
    pool_demonstrations: int = 512
    """Drawn at once and sorted by length, so that little is padding."""
    tokenizer_demonstrations: int = 4000
    mix: Mix = field(default_factory=Mix)


def build_nano(out_dir: Path, *, steps: int | None = None, progress: Progress | None = None) -> Checkpoint:
    """Trains `nano` and writes its four files to `out_dir`; with `steps` only that many steps of the same schedule."""
    recipe = Recipe()
    checkpoint = train(NANO, recipe, steps=steps, progress=progress)
    checkpoint.write_dir(out_dir)
    built = Built(
        digest=checkpoint.digest,
        torch=str(torch.__version__),
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        threads=1,
        demonstrations=demonstrations_digest(recipe),
    )
    (out_dir / BUILT).write_bytes(msgspec.json.format(msgspec.json.encode(built), indent=1) + b"\n")
    return checkpoint


def demonstrations_digest(recipe: Recipe) -> str:
    """sha256 over the text of the first pool of demonstrations: cheap to compute, and changes with what is fed."""
    rng = _demonstrations(recipe)
    drawn = [draw_task(rng, recipe.mix) for _ in range(recipe.pool_demonstrations)]
    texts = [[task.instruction, *((t.command, t.output) for t in task.novice(marks))] for task, marks in drawn]
    return hashlib.sha256(msgspec.json.encode(texts)).hexdigest()


def train(
    config: LlamaConfig, recipe: Recipe, *, steps: int | None = None, progress: Progress | None = None
) -> Checkpoint:
    one_thread()
    names = TemplateNames()
    files = {
        "config.json": write_config(config),
        "template.json": msgspec.json.encode(names),
        "tokenizer.json": train_tokenizer(recipe, names, config.vocab_size),
    }
    weights = initial_weights(config, recipe.seed)
    muon = Muon(weights)
    rest = {name: weight for name, weight in weights.items() if name not in muon.names}
    adamw = AdamW.fresh(rest)
    rotation = Rotation.of(config, config.max_position_embeddings)
    stream = demonstration_batches(recipe, Template.read(files))
    for step in range(recipe.steps if steps is None else steps):
        leaves = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
        loss = _loss(Llama(config, leaves), next(stream), rotation)
        gradients = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        gradients, _ = clipped(gradients, norm_max=recipe.grad_norm_max)
        share = rate_share(step, recipe)
        matrices = muon.stepped(weights, gradients, rate=recipe.matrix_rate * share, decay=recipe.matrix_decay)
        rest, adamw = adamw.stepped(rest, gradients, rate=recipe.rest_rate * share)
        weights = {name: matrices[name] if name in matrices else rest[name] for name in weights}
        if progress is not None:
            progress(step + 1, recipe.steps, float(loss.detach()))
    return Checkpoint(files | {"model.safetensors": write_tensors(weights)})


def rate_share(step: int, recipe: Recipe) -> float:
    """Of the full rates: linear warm-up, level, linear fall."""
    warm = min(1.0, (step + 1) / recipe.warmup_steps)
    left = (recipe.steps - step) / (recipe.steps * recipe.decay_share)
    return warm * max(0.01, min(1.0, left))


def demonstration_batches(recipe: Recipe, template: Template) -> Iterator[Batch]:
    """Endless; every pool is drawn, cut into batches of near-equal length, and its batches are shuffled."""
    rng = _demonstrations(recipe)
    while True:
        rows = []
        for _ in range(recipe.pool_demonstrations):
            task, mistaken = draw_task(rng, recipe.mix)
            rows.append(row_of(Trajectory(segments=tuple(segments(task, mistaken, template)), reward=1.0), 1.0))
        pool = batches(rows, tokens_max=recipe.batch_tokens)
        rng.shuffle(pool)
        yield from pool


def train_tokenizer(recipe: Recipe, names: TemplateNames, vocab_size: int) -> bytes:
    """Byte-level BPE on demonstrations. Words, digits and signs are split; a space goes with what follows.

    Its texts name things by random letters, so that no name is a token and a reserved word is spelled like any other.
    """
    tokenizer = FastTokenizer(models.BPE())
    split = Regex(r" ?[A-Za-z]+| ?[0-9]| ?[^A-Za-z0-9\s]|\s")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(split, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(names.specials),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    rng = seeded("cold start tokenizer", recipe.seed)
    mix = replace(recipe.mix, invented_rate=1.0, letters_rate=1.0)
    texts = []
    for _ in range(recipe.tokenizer_demonstrations):
        task, mistaken = draw_task(rng, mix)
        texts += [task.instruction, *(part for turn in task.novice(mistaken) for part in (turn.command, turn.output))]
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.to_str(pretty=False).encode()


def _demonstrations(recipe: Recipe) -> Random:
    return seeded("cold start demonstrations", recipe.seed)


def _loss(model: Llama, batch: Batch, rotation: Rotation) -> torch.Tensor:
    hidden = model.causal(batch.input_N_T, rotation)
    return F.cross_entropy(model.logits(hidden[batch.mask_N_T]), batch.target_N_T[batch.mask_N_T])
