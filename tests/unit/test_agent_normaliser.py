"""Terminal bytes become model text the same way every time."""

import time

import pytest

from services.kernel.agent.normaliser import SHOWN_BYTES_MIN, clip, normalise_v1, show_v1


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (b"", ""),
        (b"plain\n", "plain"),
        (b"a\r\nb\rc\n\n", "a\nb\nc"),
        (b"\xff\xfe\x00\x1b[2J\x1b]0;t\x07\r\n\xf0\x9f", "\ufffd\ufffd\n\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\x1b[1;31mred\x1b[0m \x1b(Bx\x1b=y", "red xy"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"tab\tbell\x07del\x7f\xc2\x9b", "tab\tbelldel"),
        (b"\x1b", ""),
        (b"\x1b]never ended", ""),
    ],
)
def test_output_is_decoded_and_stripped(output: bytes, text: str) -> None:
    assert normalise_v1(output) == text


def test_a_failing_command_shows_its_exit_code_and_a_good_one_does_not() -> None:
    assert show_v1(b"x\n", 0, 100) == "x"
    assert show_v1(b"x\n", 2, 100) == "x\n[exit 2]"
    assert show_v1(b"", 127, 100) == "[exit 127]"


def test_text_at_the_bound_is_whole_and_one_byte_more_is_cut_in_the_middle() -> None:
    assert clip("a" * 64, 64) == "a" * 64
    assert clip("a" * 32 + "bc" + "d" * 31, 64) == "a" * 32 + "\n[1 bytes left out]\n" + "c" + "d" * 31


def test_a_cut_never_splits_a_character() -> None:
    shown = clip("é" * 100, 65)
    assert shown == "é" * 16 + "\n[136 bytes left out]\n" + "é" * 16


def test_bytes_cut_before_are_counted_in_the_note() -> None:
    assert "[1000 bytes left out]" in show_v1(b"head tail", 0, 64, bytes_lost=1000)


def test_a_bound_too_small_to_show_anything_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 64"):
        clip("x", SHOWN_BYTES_MIN - 1)


@pytest.mark.parametrize("unit", [b"\x1b]", b"\x1b[", b"\x1b[0", b"\x1b", b"\r", b"\xff", b"\x1b]\x1b[;"])
def test_hostile_output_takes_linear_time(unit: bytes) -> None:
    start = time.process_time()
    normalise_v1(unit * (512 * 1024 // len(unit)))
    assert time.process_time() - start < 2.0
