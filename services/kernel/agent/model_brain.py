"""Speakers that are language models: one engine session for the group, tokens in and tokens out, never re-tokenised."""

import asyncio
from collections.abc import Sequence

from services.kernel.agent.conversation import Exchange, Observation, Utterance
from services.kernel.models.protocol import Engine, Sampled, Session
from services.kernel.models.template import Template
from services.kernel.models.trajectory import Segment
from services.kernel.spool import count_tokens


class ModelBrain:
    """One group over one session; the same engine, instructions, seed and observations give the same utterances.

    Args:
        seed: of the session.
        temperature: > 0.
        new_tokens_max: bound of one answer.
        context_max: bound of one conversation.
    """

    def __init__(
        self,
        engine: Engine,
        template: Template,
        *,
        seed: int,
        temperature: float,
        new_tokens_max: int,
        context_max: int,
    ) -> None:
        self._engine = engine
        self._template = template
        self._seed, self._temperature = seed, temperature
        self._new_tokens_max, self._context_max = new_tokens_max, context_max
        self._session: Session | None = None
        self._segments: list[list[Segment]] = []
        self._heard: list[list[int]] = []
        self._turn = 0

    async def open(self, instructions: Sequence[str]) -> None:
        prompts = [self._template.prompt(instruction) for instruction in instructions]
        self._segments = [[Segment(kind="prompt", token_ids=tuple(prompt))] for prompt in prompts]
        self._heard = [[] for _ in prompts]
        count_tokens(prompt_tokens=sum(map(len, prompts)))
        # A prompt that fills the context leaves no room for an answer: the session says overflow, nothing is cut here.
        self._session = await asyncio.to_thread(self._start, prompts)

    async def speak(self, rows: Sequence[int]) -> list[Utterance]:
        sampled = await asyncio.to_thread(self._generate)
        self._turn += 1
        return [self._take(row, sampled[row]) for row in rows]

    async def hear(self, row: int, observation: Observation) -> None:
        tokens = self._template.observation(observation.text)
        self._heard[row] = tokens
        count_tokens(prompt_tokens=len(tokens))
        self._segments[row].append(Segment(kind="observed", token_ids=tuple(tokens)))

    def segments(self, row: int) -> tuple[Segment, ...]:
        return tuple(self._segments[row])

    def exchanges(self, row: int) -> tuple[Exchange, ...]:
        return ()

    def _start(self, prompts: list[list[int]]) -> Session:
        return self._engine.open(
            prompts,
            seed=self._seed,
            temperature=self._temperature,
            new_tokens_max=self._new_tokens_max,
            context_max=self._context_max,
        )

    def _generate(self) -> list[Sampled | None]:
        if self._session is None:
            raise RuntimeError("open the brain first")
        if self._turn > 0:
            # A row that has heard nothing has left the conversation: an empty list says so.
            self._session.extend(self._heard)
            self._heard = [[] for _ in self._heard]
        return self._session.generate(self._turn)

    def _take(self, row: int, sampled: Sampled | None) -> Utterance:
        if sampled is None:
            raise RuntimeError(f"the engine has dropped row {row}, which still speaks")
        if sampled.token_ids:
            segment = Segment(
                kind="sampled",
                token_ids=sampled.token_ids,
                logprobs=sampled.logprobs,
                truncated=not sampled.finished,
            )
            self._segments[row].append(segment)
            count_tokens(completion_tokens=len(sampled.token_ids))
        if not sampled.finished:
            return Utterance(cut="context" if sampled.overflow else "answer")
        return Utterance(command=self._template.answer(sampled.token_ids).command)
