"""A conversation as two artifacts: *content*, which follows from its causes; *observation*, what was seen on the way.

Both are JSON with a fixed order of fields: equal conversations are equal bytes. Content holds no time and no host.
"""

from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from services.kernel.agent.conversation import EndReason, Episode, Exchange, Measured, Turn
from services.kernel.archive import digest
from services.kernel.models.trajectory import Segment

CONTENT_BYTES_MAX = 16 * 2**20
OBSERVATION_BYTES_MAX = 128 * 2**20


class TranscriptError(Exception):
    """Bytes that are no transcript of a version known here, or a conversation that must not become one."""


class Content(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a trainer learns from, a proposer reads and a replay repeats."""

    version: Literal["transcript-1"] = "transcript-1"
    normaliser: str
    instruction: str
    """sha256 of the instruction's UTF-8 bytes."""
    ended: EndReason
    turns: tuple[Turn, ...]
    segments: tuple[Segment, ...]
    exchanges: tuple[Exchange, ...] | UnsetType = UNSET
    """Of a model behind an endpoint."""


class Seen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The observation artifact: raw output (base64 in JSON), CPU and wall seconds of each turn."""

    version: Literal["observation-1"] = "observation-1"
    turns: tuple[Measured, ...]


def encode(episode: Episode, *, normaliser: str = "v1") -> tuple[bytes, bytes]:
    """Content and observation of a finished conversation.

    Raises:
        TranscriptError: it ended with `infra_failed`: that is no fact, and must not be stored as one.
    """
    if episode.ended is EndReason.infra_failed:
        raise TranscriptError(f"an attempt that failed for infrastructure has no transcript ({episode.failure})")
    content = Content(
        normaliser=normaliser,
        instruction=digest(episode.instruction.encode()),
        ended=episode.ended,
        turns=episode.turns,
        segments=episode.segments,
        exchanges=episode.exchanges or UNSET,
    )
    return msgspec.json.encode(content), msgspec.json.encode(Seen(turns=episode.measured))


def decode_content(raw: bytes) -> Content:
    """Raises TranscriptError."""
    if len(raw) > CONTENT_BYTES_MAX:
        raise TranscriptError(f"content of {len(raw)} bytes, more than {CONTENT_BYTES_MAX}")
    try:
        return msgspec.json.decode(raw, type=Content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TranscriptError(f"not a transcript of version transcript-1: {error}") from error


def decode_observation(raw: bytes) -> Seen:
    """Raises TranscriptError."""
    if len(raw) > OBSERVATION_BYTES_MAX:
        raise TranscriptError(f"observation of {len(raw)} bytes, more than {OBSERVATION_BYTES_MAX}")
    try:
        return msgspec.json.decode(raw, type=Seen)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TranscriptError(f"not an observation of version observation-1: {error}") from error
