"""The cold start: what it is fed, that it is the same every time, and that the shipped file is its result."""

import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from services.kernel.models.config import NANO
from services.kernel.models.shipped import ROOT, read_built, shipped
from services.kernel.models.template import TemplateNames
from services.kernel.skills.catalogue import SKILLS
from services.kernel.skills.lexicon import RESERVED, seeded
from services.trainer.learner.coldstart import (
    Recipe,
    build_nano,
    demonstrations_digest,
    rate_share,
    train,
    train_tokenizer,
)
from services.trainer.learner.demonstrations import Mix, draw_task, invented, segments, words
from services.trainer.learner.muon import Muon, orthogonal
from tests.support.tiny_model import TINY, tiny_checkpoint


def test_nothing_fed_holds_a_reserved_word() -> None:
    rng = seeded("test", "reserved")
    for _ in range(1500):
        task, marks = draw_task(rng, Mix())
        said = [task.instruction, *(part for turn in task.novice(marks) for part in (turn.command, turn.output))]
        assert not {word for text in said for word in re.findall("[a-z]+", text.lower())} & set(RESERVED)


def test_words_of_a_task_never_lie_inside_each_other() -> None:
    rng = seeded("test", "words")
    for _ in range(50):
        drawn = words(rng, Mix())
        assert not [(a, b) for a in drawn for b in drawn if a is not b and a in b]
    assert len({invented(rng, 0.25) for _ in range(500)}) > 450


def test_every_skill_is_shown_and_most_steps_carry_the_mistake() -> None:
    rng = seeded("test", "mix")
    shown: Counter[str] = Counter()
    marks: list[bool] = []
    counts: Counter[int] = Counter()
    for _ in range(2000):
        task, mistaken = draw_task(rng, Mix())
        shown.update(task.skills)
        counts[len(task.steps)] += 1
        marks += mistaken
    assert shown.keys() == SKILLS.keys()
    assert 0.57 < sum(marks) / len(marks) < 0.63
    assert 900 < counts[1] < 1100
    assert 240 < counts[3] < 360


def test_a_demonstration_reads_like_a_recorded_rollout() -> None:
    template = tiny_checkpoint().template
    rng = seeded("test", "transcript")
    task, _ = draw_task(rng, Mix(steps_weights=(0, 1)))
    right = (False,) * len(task.steps)
    found = segments(task, right, template)
    assert [segment.kind for segment in found[:3]] == ["prompt", "sampled", "observed"]
    assert list(found[0].token_ids) == template.prompt(task.instruction)
    answers = [template.answer(segment.token_ids).command for segment in found if segment.kind == "sampled"]
    assert answers == [*(turn.command for turn in task.turns), None]
    assert not any(segment.truncated for segment in found)


def test_a_failed_command_shows_its_exit_code() -> None:
    template = tiny_checkpoint().template
    rng = seeded("test", "exit")
    seen = ""
    while "No such file" not in seen:
        task, _ = draw_task(rng, Mix(steps_weights=(1,)))
        observed = [s for s in segments(task, (True,), template) if s.kind == "observed"]
        seen = template.tokenizer.decode(observed[0].token_ids).decode()
    assert seen.endswith("[exit 1]")


def test_rates_warm_up_stay_and_fall() -> None:
    recipe = Recipe(steps=100, warmup_steps=10, decay_share=0.5)
    shares = [rate_share(step, recipe) for step in (0, 9, 50, 75, 99)]
    assert shares == pytest.approx([0.1, 1, 1, 0.5, 0.02])


@pytest.mark.parametrize("shape", [(16, 16), (48, 16), (16, 48)])
def test_an_orthogonal_step_has_singular_values_near_one(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    values = torch.linalg.svdvals(orthogonal(matrix))
    assert bool(((values > 0.3) & (values < 1.3)).all())
    assert torch.linalg.svdvals(matrix).max() > 3


def test_muon_takes_the_matrices_of_the_blocks_and_nothing_else() -> None:
    weights = tiny_checkpoint().weights()
    muon = Muon(weights)
    assert len(muon.names) == 7 * TINY.num_hidden_layers
    moved = muon.stepped(weights, weights, rate=0.0, decay=0.1)
    assert moved.keys() == set(muon.names)
    assert all(torch.equal(moved[name], weights[name]) for name in moved)


def test_a_prefix_of_the_recipe_gives_the_same_digest_twice() -> None:
    short = Recipe(tokenizer_demonstrations=200, pool_demonstrations=64, batch_tokens=1024)
    first, second = (train(NANO, short, steps=4).digest for _ in range(2))
    assert first == second
    assert train(NANO, short, steps=3).digest != first
    assert train(NANO, replace(short, seed=2), steps=4).digest != first


def test_the_shipped_checkpoint_is_whole_and_was_fed_what_the_recipe_feeds_now() -> None:
    checkpoint, built = shipped("nano"), read_built(ROOT / "nano")
    assert checkpoint.config == NANO
    assert checkpoint.digest == built.digest
    assert built.demonstrations == demonstrations_digest(Recipe()), "skills or recipe changed: build nano again"
    assert checkpoint.files["tokenizer.json"] == train_tokenizer(Recipe(), TemplateNames(), NANO.vocab_size)


@pytest.mark.slow
@pytest.mark.skipif("ENVWHEEL_REBUILD_NANO" not in os.environ, reason="minutes: set ENVWHEEL_REBUILD_NANO=1")
def test_the_whole_recipe_gives_the_shipped_digest(tmp_path: Path) -> None:
    built = read_built(ROOT / "nano")
    here = (torch.__version__, torch.backends.cpu.get_cpu_capability())
    if here != (built.torch, built.cpu_capability):
        pytest.skip(f"built with {built.torch} on {built.cpu_capability}; here is {here}")
    assert build_nano(tmp_path / "nano").digest == built.digest
