"""Speakers that are models behind an endpoint: text or tool calls in and out, every token counted against a budget."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from schemas.models import ModelRules, Price
from services.kernel.agent.conversation import Exchange, Observation, Utterance
from services.kernel.agent.speech import SPEECHES
from services.kernel.models.chat.client import ChatClient
from services.kernel.models.chat.errors import ContextOverflowError
from services.kernel.models.chat.message import ChatAnswer, ChatMessage, ChatRequest, TokenUsage
from services.kernel.models.trajectory import Segment

PROBLEMS_MAX = 4
"""Answers in a row without a command before the conversation ends as malformed."""
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


@dataclass
class _Row:
    messages: list[ChatMessage]
    exchanges: list[Exchange] = field(default_factory=list)
    last: ChatAnswer | None = None
    problems: int = 0


class ChatBrain:
    """Conversations of one group with one model; each has the whole budget of the model's rules.

    Not deterministic: an endpoint may answer otherwise the next time, so what it says is a fact once it is in the log.
    """

    def __init__(self, client: ChatClient, rules: ModelRules, *, seed: int, system: str = "") -> None:
        self._client = client
        self._rules = rules
        self._seed = seed
        self._speech = SPEECHES[rules.speech]
        self._system = f"{system}\n\n{self._speech.rule}".strip()
        self._rows: list[_Row] = []
        self._budgets: list[Budget] = []

    async def open(self, instructions: Sequence[str]) -> None:
        self._rows = [
            _Row([ChatMessage(role="system", content=self._system), ChatMessage(role="user", content=instruction)])
            for instruction in instructions
        ]
        rules = self._rules
        self._budgets = [Budget(rules.episode_tokens_max, rules.episode_usd_max, rules.price) for _ in instructions]

    async def speak(self, rows: Sequence[int]) -> list[Utterance]:
        async with asyncio.TaskGroup() as group:
            spoken = [group.create_task(self._speak(row)) for row in rows]
        return [each.result() for each in spoken]

    async def hear(self, row: int, observation: Observation) -> None:
        """What the terminal says; a model hears nothing of an empty output unless it is told so."""
        place = self._rows[row]
        if place.last is not None:
            place.messages += self._speech.reply(place.last, observation.text or "(no output)")

    def segments(self, row: int) -> tuple[Segment, ...]:
        """Tokens as the endpoint gave them, with log-probabilities; empty where it gives none."""
        found: list[Segment] = []
        seen: list[int] = []
        for exchange in self._rows[row].exchanges:
            answer = exchange.answer
            if not answer.token_ids or len(answer.logprobs) != len(answer.token_ids) or not answer.prompt_token_ids:
                return ()
            if list(answer.prompt_token_ids[: len(seen)]) != seen:
                return ()  # the template wrote the past anew: these are no tokens of one conversation
            told = answer.prompt_token_ids[len(seen) :]
            if told:
                found.append(Segment(kind="observed" if seen else "prompt", token_ids=tuple(told)))
            cut = answer.finish == "length"
            found.append(Segment(kind="sampled", token_ids=answer.token_ids, logprobs=answer.logprobs, truncated=cut))
            seen = [*answer.prompt_token_ids, *answer.token_ids]
        return tuple(found)

    def exchanges(self, row: int) -> tuple[Exchange, ...]:
        return tuple(self._rows[row].exchanges)

    @property
    def spent(self) -> TokenUsage:
        """Of all conversations together, answers that could not be used included."""
        return sum((budget.spent for budget in self._budgets), self._client.wasted)

    async def _speak(self, row: int) -> Utterance:
        place, budget, rules = self._rows[row], self._budgets[row], self._rules
        left = budget.tokens_left()
        if left is not None and left < ANSWER_TOKENS_MIN:
            return Utterance(cut="budget")
        request = ChatRequest(
            model=rules.model,
            messages=tuple(place.messages),
            answer_tokens_max=rules.answer_tokens_max if left is None else min(left, rules.answer_tokens_max),
            tools=self._speech.tools,
            temperature=rules.temperature,
            top_p=rules.top_p,
            seed=(self._seed + row) % 2**31 if rules.seeded else None,
            token_ids=rules.token_ids,
            extra=rules.extra,
        )
        try:
            answer = await self._client.ask(request)
        except ContextOverflowError:
            return Utterance(cut="context")
        budget.spent += answer.usage
        place.exchanges.append(Exchange(answer=answer))
        return self._take(place, answer)

    def _take(self, place: _Row, answer: ChatAnswer) -> Utterance:
        if answer.refusal or answer.finish == "content_filter":
            return Utterance(cut="refused")
        if answer.finish == "length":
            return Utterance(cut="answer")
        place.last = answer
        place.messages.append(self._speech.assistant(answer))
        said = self._speech.read(answer)
        place.problems = place.problems + 1 if said.problem else 0
        return Utterance(cut="malformed") if place.problems >= PROBLEMS_MAX else said
