"""What is said between a speaker (a model, a script) and the terminal: the types that brains and transcripts share."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from services.kernel.models.chat.message import ChatAnswer
from services.kernel.models.trajectory import Segment
from services.kernel.sandbox.protocol import Ended, Limits


class EndReason(StrEnum):
    """Why a conversation came to its end. All are graded but the last."""

    submitted = "submitted"
    turns_max = "turns_max"
    truncated_answer = "truncated_answer"
    """One answer reached the bound of its tokens."""
    context_overflow = "context_overflow"
    over_budget = "over_budget"
    """The tokens or the money of the episode are spent."""
    malformed = "malformed"
    """Answer after answer held no command."""
    refused = "refused"
    """The model, or its endpoint's filter, would not go on."""
    cpu_limit = "cpu_limit"
    hung = "hung"
    """The wall limit came while the command's processes were idle: it waited for something that never comes."""
    infra_failed = "infra_failed"
    """The sandbox failed, or was so slow that a busy command met the wall limit."""


Cut: TypeAlias = Literal["answer", "context", "budget", "malformed", "refused"]
"""Why there is no answer that a conversation could go on with."""


class Utterance(Struct, frozen=True, kw_only=True):
    """One answer of a speaker: a command line, a problem that it is told of, a submission (neither), or an answer that
    ends the conversation.
    """

    command: str | None = None
    problem: str = ""
    """Why the answer held no command."""
    cut: Cut | None = None


class Observation(Struct, frozen=True):
    """What a speaker hears after its command."""

    text: str
    """Normalised and clipped; a failing command's exit code is its last line."""
    exit_code: int


class Exchange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer of a model behind an endpoint, whole."""

    answer: ChatAnswer


class Brain(Protocol):
    """The speakers of one group of conversations, in lockstep: all that still speak do so, then all hear."""

    async def open(self, instructions: Sequence[str]) -> None:
        """Begins one conversation for each instruction; rows are numbered in this order."""
        ...

    async def speak(self, rows: Sequence[int]) -> Sequence[Utterance]:
        """One utterance for each of `rows`; rows that are not asked any more have left for good."""
        ...

    async def hear(self, row: int, observation: Observation) -> None: ...

    def segments(self, row: int) -> tuple[Segment, ...]:
        """Tokens of the conversation so far, as they were sampled; empty for a speaker without tokens."""
        ...

    def exchanges(self, row: int) -> tuple[Exchange, ...]:
        """Answers as an endpoint gave them; empty for a speaker that is none."""
        ...


class HarnessLimits(Struct, frozen=True, kw_only=True):
    """Counted bounds of one conversation."""

    turns_max: int
    shown_bytes_max: int
    """Of each output, as the speaker is shown it."""
    command_bytes_max: int = 64 * 1024
    exec: Limits = Limits()
    """`cpu_s` bounds the CPU seconds of all commands together; the rest bounds each."""


class Turn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command and what came of it; follows from the causes alone."""

    command: str
    shown: str
    exit_code: int
    ended: Ended = Ended.exited


class Measured(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What else was seen of a turn."""

    output: bytes
    """Merged stdout and stderr as they came, bounded by the exec's `output_bytes_max`."""
    output_bytes: int
    """Before that bound."""
    cpu_s: float
    wall_s: float


class Episode(Struct, frozen=True, kw_only=True):
    """One finished conversation."""

    instruction: str
    turns: tuple[Turn, ...]
    measured: tuple[Measured, ...]
    """One for each turn."""
    segments: tuple[Segment, ...]
    exchanges: tuple[Exchange, ...] = ()
    ended: EndReason
    failure: str = ""
    """What failed, for `infra_failed`."""

    @property
    def volatile(self) -> bool:
        """A limit that is watched by the clock stopped a command: another run may end otherwise."""
        return any(turn.ended is not Ended.exited for turn in self.turns)

    @property
    def cpu_s(self) -> float:
        return sum(each.cpu_s for each in self.measured)

    @property
    def sampled_tokens(self) -> int:
        return sum(len(segment.token_ids) for segment in self.segments if segment.kind == "sampled")
