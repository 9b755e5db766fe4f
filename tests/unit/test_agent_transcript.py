"""A transcript is the same bytes for the same conversation, and nothing else decodes as one."""

import msgspec
import pytest

from services.kernel.agent.conversation import EndReason, Episode, Measured, Turn
from services.kernel.agent.transcript import TranscriptError, decode_content, decode_observation, encode
from services.kernel.archive import digest
from services.kernel.models.trajectory import Segment
from services.kernel.sandbox.protocol import Ended

LOGPROB = -0.6931471824645996
"""log(1/2) as a float32."""


def _episode(*, cpu_s: float = 0.01, ended: EndReason = EndReason.submitted, stop: Ended = Ended.exited) -> Episode:
    return Episode(
        instruction="Do it.",
        turns=(Turn(command="echo é", shown="é\n[exit 1]", exit_code=1, ended=stop),),
        measured=(Measured(output=b"\xff\x00", output_bytes=2, cpu_s=cpu_s, wall_s=0.02),),
        segments=(
            Segment(kind="prompt", token_ids=(0, 5)),
            Segment(kind="sampled", token_ids=(7, 2), logprobs=(LOGPROB, -0.0)),
            Segment(kind="observed", token_ids=(3, 1)),
            Segment(kind="sampled", token_ids=(7,), logprobs=(LOGPROB,), truncated=True),
        ),
        ended=ended,
    )


def test_content_comes_back_bit_for_bit_and_holds_no_time() -> None:
    episode = _episode()
    raw, seen = encode(episode)
    content = decode_content(raw)
    assert (content.turns, content.segments, content.ended) == (episode.turns, episode.segments, episode.ended)
    assert content.segments[1].logprobs == (LOGPROB, -0.0)
    assert content.instruction == digest(b"Do it.")
    assert msgspec.json.encode(content) == raw
    assert decode_observation(seen).turns == episode.measured
    assert b"_s" not in raw


def test_what_was_only_observed_changes_no_byte_of_content() -> None:
    one, other = encode(_episode(cpu_s=0.01)), encode(_episode(cpu_s=9.0))
    assert one[0] == other[0]
    assert one[1] != other[1]


def test_the_end_is_part_of_content() -> None:
    assert encode(_episode())[0] != encode(_episode(ended=EndReason.turns_max))[0]


def test_a_conversation_stopped_by_a_watched_limit_is_volatile() -> None:
    assert not _episode().volatile
    assert _episode(stop=Ended.memory_limit).volatile


def test_sampled_tokens_are_counted_and_others_not() -> None:
    assert _episode().sampled_tokens == 3


def test_an_infrastructure_failure_never_becomes_a_transcript() -> None:
    with pytest.raises(TranscriptError, match="infrastructure"):
        encode(_episode(ended=EndReason.infra_failed))


@pytest.mark.parametrize(
    "change",
    [
        (b"transcript-1", b"transcript-9"),
        (b'"normaliser"', b'"normalizer"'),
        (b'"ended":"submitted"', b'"ended":"vanished"'),
        (b'"turns":[{', b'"more":1,"turns":[{'),
        (b'"exit_code":1', b'"exit_code":"1"'),
        (b'"logprobs":[-0.6931471824645996,-0.0]', b'"logprobs":[-0.6931471824645996]'),
        (b"}]}", b"}]"),
        (b"echo", b"\xff"),
    ],
)
def test_other_bytes_are_no_transcript(change: tuple[bytes, bytes]) -> None:
    raw = encode(_episode())[0]
    assert change[0] in raw
    with pytest.raises(TranscriptError):
        decode_content(raw.replace(*change))


@pytest.mark.parametrize("raw", [b"", b"[" * 100_000, b"\xff", b'{"version":"observation-2","turns":[]}'])
def test_other_bytes_are_no_observation(raw: bytes) -> None:
    with pytest.raises(TranscriptError):
        decode_observation(raw)
