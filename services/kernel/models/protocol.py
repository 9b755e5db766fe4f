"""What a solver or proposer asks of a language model: tokens in, sampled tokens and their log-probabilities out."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Sampled:
    """One answer of one row."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural logarithms under the sampling distribution; each is exactly a float32."""
    finished: bool
    """True where the last token ends an answer; False where a limit cut it off."""
    overflow: bool = False
    """True where the limit was the context, not the length of one answer: the conversation cannot go on."""


class Session(Protocol):
    """The conversations of one group, the unit of generation: same opening, seed and observations, same tokens."""

    def generate(self, turn: int) -> list[Sampled | None]:
        """The next answer of each row that is still in the conversation; None for a row that has left it."""
        ...

    def extend(self, rows: list[list[int]]) -> None:
        """Adds what each row hears after its answer; an empty list takes the row out for good."""
        ...


class Engine(Protocol):
    """Serves one checkpoint."""

    @property
    def checkpoint(self) -> str:
        """Digest of the checkpoint served."""
        ...

    @property
    def deterministic(self) -> bool:
        """True where sampling the same group again must give the same tokens and log-probabilities."""
        ...

    def open(
        self, prompts: list[list[int]], *, seed: int, temperature: float, new_tokens_max: int, context_max: int
    ) -> Session:
        """Starts one conversation a prompt.

        Args:
            seed: non-negative, below 2**63; every random draw of the session follows from it and the turn.
            temperature: > 0.
            new_tokens_max: bound of one answer.
            context_max: bound of one conversation, prompt and answers and observations together.
        """
        ...
