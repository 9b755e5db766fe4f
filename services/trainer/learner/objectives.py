"""The policy objectives, as pure functions. Shapes in names: G attempts of a group, N packed rows, T tokens.

Ratios are taken on the log-probabilities recorded while sampling, never on recomputed ones.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

LOG_RATIO_MAX = 20.0


@dataclass(frozen=True)
class Surrogate:
    """Per token and before averaging; zero outside the mask."""

    loss_N_T: Tensor
    kept_N_T: Tensor
    """1 where a gradient flows."""
    log_ratio_N_T: Tensor
    """Detached; trainer minus sampler."""


def centred_advantages(reward_G: Tensor, *, by_std: bool) -> Tensor:
    """reward - group mean (DPPO); divided by the group's standard deviation for GRPO. A flat group gives zeros."""
    advantage_G = reward_G - reward_G.mean()
    if not by_std:
        return advantage_G
    std = reward_G.std(correction=0)
    return advantage_G / std if std > 0 else torch.zeros_like(advantage_G)


def log_ratio(logp_N_T: Tensor, behaviour_N_T: Tensor, mask_N_T: Tensor) -> Tensor:
    """Masked before exp, so that padding can neither overflow nor turn a gradient into 0 * inf."""
    masked = torch.where(mask_N_T, logp_N_T - behaviour_N_T, torch.zeros_like(logp_N_T))
    return masked.clamp(-LOG_RATIO_MAX, LOG_RATIO_MAX)


def dppo(
    logp_N_T: Tensor,
    behaviour_N_T: Tensor,
    advantage_N_T: Tensor,
    mask_N_T: Tensor,
    *,
    tv_max: float,
) -> Surrogate:
    """Policy gradient with a trust region in total variation (Tmax, arXiv 2606.23321, section 4.1).

    The divergence of a token is approximated by that of a coin: |p_trainer - p_sampler| of the sampled token. Where it
    exceeds `tv_max` and the update would push further away (ratio > 1 and advantage > 0, or ratio < 1 and advantage <
    0), the token is masked.
    """
    delta = log_ratio(logp_N_T, behaviour_N_T, mask_N_T)
    with torch.no_grad():
        variation = (behaviour_N_T.exp() * delta.expm1()).abs()
        away = delta * advantage_N_T > 0
        kept = mask_N_T & ~((variation > tv_max) & away)
    loss = torch.where(kept, -advantage_N_T * delta.exp(), torch.zeros_like(delta))
    return Surrogate(loss, kept.float(), delta.detach())


def grpo(
    logp_N_T: Tensor,
    behaviour_N_T: Tensor,
    advantage_N_T: Tensor,
    mask_N_T: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
) -> Surrogate:
    """The clipped surrogate of PPO with an asymmetric range."""
    delta = log_ratio(logp_N_T, behaviour_N_T, mask_N_T)
    ratio = delta.exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = torch.maximum(-advantage_N_T * ratio, -advantage_N_T * clipped)
    with torch.no_grad():
        outside = ((ratio > 1 + clip_high) & (advantage_N_T > 0)) | ((ratio < 1 - clip_low) & (advantage_N_T < 0))
    zero = torch.zeros_like(delta)
    return Surrogate(torch.where(mask_N_T, loss, zero), (mask_N_T & ~outside).float(), delta.detach())
