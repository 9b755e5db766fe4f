"""What a rollout did to the model, token by token: the part of a content artifact that a trainer learns from."""

from typing import Annotated, Literal

import msgspec

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class Segment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Tokens of one origin. Only `sampled` ones carry log-probabilities, one a token, each exactly a float32."""

    kind: Literal["prompt", "sampled", "observed"]
    token_ids: tuple[TokenId, ...]
    logprobs: tuple[float, ...] = ()
    truncated: bool = False
    """The answer was cut off by a limit: it stays in the context, and out of the loss."""

    def __post_init__(self) -> None:
        if len(self.logprobs) != (len(self.token_ids) if self.kind == "sampled" else 0):
            raise ValueError("a sampled segment carries one log-probability a token, others none")


class Trajectory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One attempt in the order it happened, and its reward in [0, 1]."""

    segments: tuple[Segment, ...]
    reward: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
    masked: bool = False
    """Infrastructure failed: neither in the mean nor in the loss."""

    @property
    def tokens(self) -> int:
        return sum(len(segment.token_ids) for segment in self.segments)


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All attempts on one environment by one checkpoint."""

    trajectories: tuple[Trajectory, ...]
