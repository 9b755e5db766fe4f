"""How a model behind an endpoint is asked, and what it costs: all of it can change a result or a bill."""

from typing import Annotated, Any, Literal, Protocol

import msgspec

from schemas.science import Count, Positive, Section, Share

Usd = Annotated[float, msgspec.Meta(ge=0.0)]


class Counted(Protocol):
    """Tokens as an endpoint counts them; `cached_tokens` are part of `prompt_tokens`."""

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def completion_tokens(self) -> int: ...


class Price(Section, frozen=True, kw_only=True):
    """US dollars for a million tokens."""

    prompt_usd: Usd = 0.0
    cached_usd: Usd = 0.0
    """Of prompt tokens that the endpoint had in its cache."""
    completion_usd: Usd = 0.0

    def usd(self, usage: Counted) -> float:
        fresh = usage.prompt_tokens - usage.cached_tokens
        prompt_usd = fresh * self.prompt_usd + usage.cached_tokens * self.cached_usd
        return (prompt_usd + usage.completion_tokens * self.completion_usd) / 1_000_000


class ModelRules(Section, frozen=True, kw_only=True):
    """A model of the roster that is asked over HTTP. Where it is asked stands in `endpoints.toml`."""

    endpoint: str
    """Name of the endpoint."""
    model: str
    """Name by which the endpoint knows it."""
    speech: Literal["tools", "block"] = "tools"
    temperature: Annotated[float, msgspec.Meta(ge=0.0)] = 1.0
    top_p: Share = 1.0
    seeded: bool = True
    """Send a seed; some endpoints refuse one."""
    token_ids: bool = False
    """Ask for token ids and log-probabilities (vLLM)."""
    answer_tokens_max: Count = 4096
    prompt_bytes_max: Annotated[int, msgspec.Meta(ge=4096)] = 96 * 1024
    """Of the first message to a proposer without a terminal: has to fit the model's context (about 4 bytes a token)."""
    episode_tokens_max: Count | None = 400_000
    """Prompt and completion tokens of one episode, every answer counted."""
    episode_usd_max: Positive | None = None
    price: Price = Price()
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    """Further keys of each request, e.g. `{reasoning_effort = "low"}`."""
