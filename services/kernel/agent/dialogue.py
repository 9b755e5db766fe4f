"""One conversation with a model behind an endpoint: what was said, what it cost, and how much more it may cost."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas.models import ModelRules, Price
from services.kernel.agent.conversation import Cut, Exchange
from services.kernel.models.chat.client import ChatClient
from services.kernel.models.chat.errors import ContextOverflowError
from services.kernel.models.chat.message import ChatAnswer, ChatMessage, ChatRequest, TokenUsage

ANSWER_TOKENS_MIN = 16
"""A budget with less left than this asks no more."""


@dataclass
class Budget:
    """What one conversation may spend: whichever bound comes first."""

    tokens_max: int | None
    usd_max: float | None
    price: Price
    spent: TokenUsage = field(default_factory=TokenUsage)

    def tokens_left(self) -> int | None:
        """Completion tokens that may still be asked for; None: no bound."""
        bounds = []
        if self.tokens_max is not None:
            bounds.append(self.tokens_max - self.spent.total_tokens)
        if self.usd_max is not None and self.price.completion_usd > 0:
            left_usd = self.usd_max - self.price.usd(self.spent)
            bounds.append(int(left_usd / self.price.completion_usd * 1_000_000))
        return max(0, min(bounds)) if bounds else None


class Dialogue:
    """`messages` is what the model is sent next; who holds the dialogue adds to it."""

    def __init__(
        self,
        client: ChatClient,
        rules: ModelRules,
        messages: Sequence[ChatMessage],
        *,
        seed: int,
        tools: tuple[dict[str, Any], ...] = (),
    ) -> None:
        self.messages = list(messages)
        self.exchanges: list[Exchange] = []
        self.budget = Budget(rules.episode_tokens_max, rules.episode_usd_max, rules.price)
        self._client = client
        self._rules = rules
        self._seed = seed % 2**31
        self._tools = tools

    async def ask(self) -> ChatAnswer | Cut:
        """The next answer, or why there is none that could be gone on with.

        Raises:
            EndpointError: the endpoint is down, silent, or will not serve this; never the model's doing.
        """
        rules, left = self._rules, self.budget.tokens_left()
        if left is not None and left < ANSWER_TOKENS_MIN:
            return "budget"
        request = ChatRequest(
            model=rules.model,
            messages=tuple(self.messages),
            answer_tokens_max=rules.answer_tokens_max if left is None else min(left, rules.answer_tokens_max),
            tools=self._tools,
            temperature=rules.temperature,
            top_p=rules.top_p,
            seed=self._seed if rules.seeded else None,
            token_ids=rules.token_ids,
            extra=rules.extra,
        )
        try:
            answer = await self._client.ask(request)
        except ContextOverflowError:
            return "context"
        self.budget.spent += answer.usage
        self.exchanges.append(Exchange(answer=answer))
        if answer.refusal or answer.finish == "content_filter":
            return "refused"
        return "answer" if answer.finish == "length" else answer
