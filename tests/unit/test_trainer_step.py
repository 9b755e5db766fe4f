"""One update on a tiny model: what is learned from, what is refused, and that equal inputs give equal bytes."""

import math
from dataclasses import replace

import pytest
import torch

from services.kernel.models.checkpoint import Checkpoint
from services.kernel.models.config import ModelError
from services.kernel.models.trajectory import Group, Segment, Trajectory
from services.trainer.learner.adamw import AdamW
from services.trainer.learner.packing import batches, learned_tokens, row_of
from services.trainer.learner.step import NonFiniteGradientError, NoSignalError, Settings, update
from tests.support.tiny_model import tiny_checkpoint

PROMPT = (0, 70, 71, 72, 1)
SETTINGS = Settings(learning_rate=1e-3)


def sampled_group(checkpoint: Checkpoint, rewards: tuple[float, ...] = (1.0, 0.0, 0.5, 0.0), *, seed: int = 4) -> Group:
    session = checkpoint.engine().open(
        [list(PROMPT)] * len(rewards), seed=seed, temperature=1.0, new_tokens_max=6, context_max=64
    )
    rows = [[Segment(kind="prompt", token_ids=PROMPT)] for _ in rewards]
    for turn in range(2):
        for row, answer in zip(rows, session.generate(turn), strict=True):
            assert answer is not None
            row.append(Segment(kind="sampled", token_ids=answer.token_ids, logprobs=answer.logprobs))
            row.append(Segment(kind="observed", token_ids=(3, 90 + turn, 1)))
        session.extend([[3, 90 + turn, 1]] * len(rewards))
    return Group(
        trajectories=tuple(Trajectory(segments=tuple(r), reward=x) for r, x in zip(rows, rewards, strict=True))
    )


def changed(group: Group, row: int, **changes: object) -> Group:
    rows = list(group.trajectories)
    fields = {"segments": rows[row].segments, "reward": rows[row].reward, "masked": rows[row].masked} | changes
    rows[row] = Trajectory(**fields)  # type: ignore[arg-type]
    return Group(trajectories=tuple(rows))


def test_equal_inputs_give_equal_bytes_over_several_updates() -> None:
    def run() -> list[tuple[str, bytes]]:
        checkpoint, state, seen = tiny_checkpoint(), None, []
        for seed in range(3):
            done = update(checkpoint, state, [sampled_group(checkpoint, seed=seed)], SETTINGS)
            checkpoint, state = done.checkpoint, done.state
            seen.append((checkpoint.digest, state))
        return seen

    first = run()
    assert first == run()
    assert len({digest for digest, _ in first}) == 3


def test_one_reward_token_logprob_or_seed_more_gives_other_bytes() -> None:
    start, group = tiny_checkpoint(), sampled_group(tiny_checkpoint())
    settings = replace(SETTINGS, minibatches=2)
    segments = group.trajectories[0].segments
    other = Segment(kind="sampled", token_ids=(77, *segments[1].token_ids[1:]), logprobs=segments[1].logprobs)
    nudged = Segment(
        kind="sampled",
        token_ids=segments[1].token_ids,
        logprobs=(segments[1].logprobs[0] - 0.01, *segments[1].logprobs[1:]),
    )
    variants = [
        (group, settings),
        (changed(group, 2, reward=0.75), settings),
        (changed(group, 0, segments=(segments[0], other, *segments[2:])), settings),
        (changed(group, 0, segments=(segments[0], nudged, *segments[2:])), settings),
        (group, replace(settings, seed=1)),
    ]
    digests = [update(start, None, [g], s).checkpoint.digest for g, s in variants]
    assert len(set(digests)) == len(variants)


def test_the_first_ratio_is_one_and_nothing_is_masked() -> None:
    metrics = update(tiny_checkpoint(), None, [sampled_group(tiny_checkpoint())], SETTINGS).metrics
    assert metrics.ratio_mean == pytest.approx(1, abs=1e-5)
    assert metrics.log_ratio_max < 1e-4
    assert (metrics.masked_share, metrics.reward_mean, metrics.groups_used, metrics.rows) == (0, 0.375, 1, 4)


def test_an_update_makes_the_rewarded_answer_likelier_and_the_other_less() -> None:
    start = tiny_checkpoint()
    group = sampled_group(start, (1.0, 0.0))
    before, after = start, update(start, None, [group], replace(SETTINGS, objective="grpo")).checkpoint

    def logp(checkpoint: Checkpoint, row: int) -> float:
        settings = Settings(learning_rate=0.0)
        lone = Group(trajectories=(group.trajectories[row], changed(group, 1 - row, masked=True).trajectories[1 - row]))
        rows = [row_of(t, 1.0) for t in lone.trajectories if not t.masked]
        from services.kernel.models.llama import Llama, Rotation
        from services.trainer.learner.step import _surrogate

        model = Llama(checkpoint.config, checkpoint.weights())
        batch = batches(rows, tokens_max=4096)[0]
        surrogate, _ = _surrogate(model, batch, Rotation.of(checkpoint.config, 64), settings)
        return float(surrogate.log_ratio_N_T.sum())

    assert logp(after, 0) > logp(before, 0)
    assert logp(after, 1) < logp(before, 1)


def test_learning_rate_zero_leaves_the_weights_bytes_equal() -> None:
    start = tiny_checkpoint()
    done = update(start, None, [sampled_group(start)], replace(SETTINGS, learning_rate=0.0))
    assert done.checkpoint.digest == start.digest
    assert AdamW.load(done.state, start.weights()).steps == 1


def test_minibatches_and_epochs_step_more_often_and_let_the_trust_region_bite() -> None:
    start = tiny_checkpoint()
    settings = replace(SETTINGS, learning_rate=0.02, minibatches=2, epochs=3, tv_max=0.01)
    done = update(start, None, [sampled_group(start), sampled_group(start, seed=9)], settings)
    assert AdamW.load(done.state, start.weights()).steps == 6
    assert done.metrics.masked_share > 0
    assert done.metrics.kl > 0


def test_micro_batches_change_memory_and_not_what_is_learned() -> None:
    start, group = tiny_checkpoint(), sampled_group(tiny_checkpoint())
    one = update(start, None, [group], SETTINGS).checkpoint.weights()
    many = update(start, None, [group], replace(SETTINGS, micro_batch_tokens_max=1)).checkpoint.weights()
    worst = max(float((one[name] - many[name]).abs().max()) for name in one)
    assert 0 <= worst < 2e-3
    assert sum(float((one[name] - many[name]).abs().mean()) for name in one) / len(one) < 2e-5


def test_masked_attempts_are_in_neither_mean_nor_loss() -> None:
    start, group = tiny_checkpoint(), sampled_group(tiny_checkpoint())
    without = Group(trajectories=group.trajectories[:3])
    masked = update(start, None, [changed(group, 3, masked=True, reward=1.0)], SETTINGS)
    assert masked.checkpoint.digest == update(start, None, [without], SETTINGS).checkpoint.digest


def test_only_sampled_tokens_are_learned_and_a_cut_off_answer_is_not() -> None:
    segments = (
        Segment(kind="prompt", token_ids=(0, 70, 1)),
        Segment(kind="sampled", token_ids=(80, 2), logprobs=(-1.0, -2.0)),
        Segment(kind="observed", token_ids=(3, 90, 1)),
        Segment(kind="sampled", token_ids=(81, 82), logprobs=(-3.0, -4.0), truncated=True),
    )
    row = row_of(Trajectory(segments=segments, reward=0.5), 0.25)
    assert row.tokens == (0, 70, 1, 80, 2, 3, 90, 1, 81, 82)
    assert row.learned == (False, False, False, True, True, False, False, False, False, False)
    assert learned_tokens(row) == 2
    batch = batches([row], tokens_max=1)[0]
    assert batch.target_N_T[batch.mask_N_T].tolist() == [80, 2]
    assert batch.behaviour_N_T[batch.mask_N_T].tolist() == [-1, -2]


def test_micro_batches_hold_the_longest_rows_first_within_their_bound() -> None:
    def row(length: int) -> Trajectory:
        return Trajectory(
            segments=(
                Segment(kind="prompt", token_ids=(0,)),
                Segment(kind="sampled", token_ids=(5,) * (length - 1), logprobs=(-1.0,) * (length - 1)),
            ),
            reward=1,
        )

    rows = [row_of(row(length), 1.0) for length in (4, 10, 6, 10, 3)]
    shapes = [tuple(batch.input_N_T.shape) for batch in batches(rows, tokens_max=20)]
    assert shapes == [(2, 9), (3, 5)]


@pytest.mark.parametrize("rewards", [(0.5, 0.5), (1.0, 1.0, 1.0)])
def test_groups_without_variance_are_no_signal(rewards: tuple[float, ...]) -> None:
    start = tiny_checkpoint()
    with pytest.raises(NoSignalError):
        update(start, None, [sampled_group(start, rewards)], SETTINGS)


def test_a_loss_that_is_not_finite_is_refused_with_its_place() -> None:
    start = tiny_checkpoint()
    segments = list(sampled_group(start).trajectories[0].segments)
    broken = Segment(kind="sampled", token_ids=segments[1].token_ids, logprobs=(math.nan,) * len(segments[1].token_ids))
    group = changed(sampled_group(start), 0, segments=(segments[0], broken, *segments[2:]))
    with pytest.raises(NonFiniteGradientError) as caught:
        update(start, None, [group], SETTINGS)
    assert caught.value.optimiser_step == 0
    assert math.isnan(caught.value.loss)


def test_a_gradient_that_is_not_finite_is_refused_by_the_weights_name() -> None:
    weights = tiny_checkpoint().weights()
    weights["model.layers.1.mlp.up_proj.weight"] *= 1e38
    start = Checkpoint.of(tiny_checkpoint(), weights)
    with pytest.raises(NonFiniteGradientError) as caught:
        update(start, None, [sampled_group(tiny_checkpoint())], SETTINGS)
    assert "model.layers.1.mlp.up_proj.weight" in caught.value.weights


def test_a_state_of_other_weights_or_damaged_bytes_is_refused() -> None:
    start = tiny_checkpoint()
    state = update(start, None, [sampled_group(start)], SETTINGS).state
    weights = start.weights()
    with pytest.raises(ModelError, match="trainer state"):
        AdamW.load(state[:-1], weights)
    with pytest.raises(ModelError, match="not those of these weights"):
        AdamW.load(state, {"other": torch.zeros(2)})
    assert AdamW.load(state, weights).save() == state
