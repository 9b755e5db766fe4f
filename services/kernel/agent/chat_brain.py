"""Speakers that are models behind an endpoint: text or tool calls in and out, every token counted against a budget."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.models import ModelRules
from services.kernel.agent.conversation import Exchange, Observation, Utterance
from services.kernel.agent.dialogue import Dialogue
from services.kernel.agent.speech import SPEECHES
from services.kernel.models.chat.client import ChatClient
from services.kernel.models.chat.message import ChatAnswer, ChatMessage, TokenUsage
from services.kernel.models.trajectory import Segment

PROBLEMS_MAX = 4
"""Answers in a row without a command before the conversation ends as malformed."""


@dataclass
class _Row:
    dialogue: Dialogue
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

    async def open(self, instructions: Sequence[str]) -> None:
        self._rows = [_Row(self._dialogue(row, instruction)) for row, instruction in enumerate(instructions)]

    async def speak(self, rows: Sequence[int]) -> list[Utterance]:
        try:
            async with asyncio.TaskGroup() as group:
                spoken = [group.create_task(self._speak(row)) for row in rows]
        except BaseExceptionGroup as failures:
            # The first is the cause: it says which endpoint failed and how.
            raise failures.exceptions[0] from failures
        return [each.result() for each in spoken]

    async def hear(self, row: int, observation: Observation) -> None:
        """What the terminal says; a model hears nothing of an empty output unless it is told so."""
        place = self._rows[row]
        if place.last is not None:
            place.dialogue.messages += self._speech.reply(place.last, observation.text or "(no output)")

    def segments(self, row: int) -> tuple[Segment, ...]:
        """Tokens as the endpoint gave them, with log-probabilities; empty where it gives none."""
        found: list[Segment] = []
        seen: list[int] = []
        for exchange in self._rows[row].dialogue.exchanges:
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
        return tuple(self._rows[row].dialogue.exchanges)

    @property
    def spent(self) -> TokenUsage:
        """Of all conversations together, answers that could not be used included."""
        return sum((row.dialogue.budget.spent for row in self._rows), self._client.wasted)

    def _dialogue(self, row: int, instruction: str) -> Dialogue:
        messages = (
            ChatMessage(role="system", content=self._system),
            ChatMessage(role="user", content=instruction),
        )
        return Dialogue(self._client, self._rules, messages, seed=self._seed + row, tools=self._speech.tools)

    async def _speak(self, row: int) -> Utterance:
        place = self._rows[row]
        answer = await place.dialogue.ask()
        if not isinstance(answer, ChatAnswer):
            return Utterance(cut=answer)
        place.last = answer
        place.dialogue.messages.append(self._speech.assistant(answer))
        said = self._speech.read(answer)
        place.problems = place.problems + 1 if said.problem else 0
        return Utterance(cut="malformed") if place.problems >= PROBLEMS_MAX else said
