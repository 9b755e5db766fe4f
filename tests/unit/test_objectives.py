"""The objectives, by values worked out by hand."""

import math

import pytest
import torch

from services.trainer.learner.objectives import LOG_RATIO_MAX, centred_advantages, dppo, grpo, log_ratio


def tokens(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


ALL = torch.tensor([[True, True, True, True]])


def test_advantages_are_centred_and_by_setting_divided_by_the_standard_deviation() -> None:
    reward = torch.tensor([1.0, 0.0, 0.5, 0.5])
    assert centred_advantages(reward, by_std=False).tolist() == [0.5, -0.5, 0.0, 0.0]
    scaled = centred_advantages(reward, by_std=True)
    assert scaled.tolist() == pytest.approx([math.sqrt(2), -math.sqrt(2), 0, 0])


@pytest.mark.parametrize("by_std", [False, True])
def test_a_flat_group_has_no_advantage(by_std: bool) -> None:
    assert centred_advantages(torch.tensor([0.25, 0.25, 0.25]), by_std=by_std).tolist() == [0, 0, 0]


def test_dppo_masks_only_where_variation_is_large_and_grows() -> None:
    """p_sampler is 0.5 throughout; p_trainer 0.61 is too far up, 0.59 inside, 0.39 too far down."""
    behaviour = tokens(*[math.log(0.5)] * 6)
    trainer = tokens(*map(math.log, (0.61, 0.61, 0.59, 0.39, 0.39, 0.41)))
    advantage = tokens(1, -1, 1, 1, -1, -1)
    found = dppo(trainer, behaviour, advantage, torch.ones(1, 6, dtype=torch.bool), tv_max=0.1)
    assert found.kept_N_T.tolist() == [[0, 1, 1, 1, 0, 1]]
    assert found.loss_N_T[0].tolist() == pytest.approx([0, 1.22, -1.18, -0.78, 0, 0.82])


def test_dppo_lets_a_rare_token_grow_many_times_where_ppo_would_clip() -> None:
    behaviour, trainer = tokens(math.log(0.001)), tokens(math.log(0.01))
    mask, advantage = torch.ones(1, 1, dtype=torch.bool), tokens(1.0)
    assert dppo(trainer, behaviour, advantage, mask, tv_max=0.1).kept_N_T.item() == 1
    assert grpo(trainer, behaviour, advantage, mask).kept_N_T.item() == 0


def test_dppo_on_the_policy_itself_is_the_policy_gradient() -> None:
    logp = tokens(-1.0, -2.0, -0.1, -3.0).requires_grad_()
    advantage = tokens(0.5, -0.5, 0.25, 0.0)
    loss = dppo(logp, logp.detach().clone(), advantage, ALL, tv_max=0.1).loss_N_T.sum()
    assert torch.autograd.grad(loss, logp)[0].tolist() == (-advantage).tolist()


def test_grpo_clips_at_its_asymmetric_edges() -> None:
    behaviour = tokens(0.0, 0.0, 0.0, 0.0)
    trainer = tokens(*map(math.log, (1.30, 1.27, 0.79, 0.81))).requires_grad_()
    advantage = tokens(1, 1, -1, -1)
    found = grpo(trainer, behaviour, advantage, ALL)
    assert found.loss_N_T[0].tolist() == pytest.approx([-1.28, -1.27, 0.8, 0.81])
    assert found.kept_N_T.tolist() == [[0, 1, 0, 1]]
    (gradient,) = torch.autograd.grad(found.loss_N_T.sum(), trainer)
    assert gradient[0].tolist() == pytest.approx([0, -1.27, 0, 0.81])


def test_grpo_never_clips_what_pulls_back() -> None:
    found = grpo(
        tokens(math.log(3.0), math.log(0.2)), tokens(0.0, 0.0), tokens(-1.0, 1.0), torch.ones(1, 2, dtype=torch.bool)
    )
    assert found.kept_N_T.tolist() == [[1, 1]]
    assert found.loss_N_T[0].tolist() == pytest.approx([3.0, -0.2])


def test_a_masked_token_takes_no_part_whatever_it_holds() -> None:
    mask = torch.tensor([[True, False, False, False]])
    logp = tokens(-1.0, float("inf"), -1e30, float("nan")).requires_grad_()
    behaviour = tokens(-1.0, 0.0, 1e30, 0.0)
    for found in (
        dppo(logp, behaviour, tokens(1, 1, 1, 1), mask, tv_max=0.1),
        grpo(logp, behaviour, tokens(1, 1, 1, 1), mask),
    ):
        (gradient,) = torch.autograd.grad(found.loss_N_T.sum(), logp)
        assert found.loss_N_T.tolist() == [[-1, 0, 0, 0]]
        assert gradient.tolist() == [[-1, 0, 0, 0]]


def test_log_ratios_are_clamped_so_that_exp_stays_finite() -> None:
    logp = tokens(0.0, -1000.0, 0.0, 0.0).requires_grad_()
    delta = log_ratio(logp, tokens(-1000.0, 0.0, 0.0, -1.0), ALL)
    assert delta.tolist() == [[LOG_RATIO_MAX, -LOG_RATIO_MAX, 0.0, 1.0]]
    (gradient,) = torch.autograd.grad(delta.exp().sum(), logp)
    assert bool(torch.isfinite(gradient).all())
