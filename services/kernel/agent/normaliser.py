"""How bytes from a terminal become text for a model: pure functions under a name that transcripts carry.

`v1`: UTF-8 with U+FFFD for what is not; terminal escape sequences gone; CRLF and lone CR become LF; other control
characters gone; line ends at the end cut; more than `bytes_max` bytes of text are cut in the middle, with a note
between head and tail.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

SHOWN_BYTES_MIN = 64

# Linear time: a sequence never runs over the next ESC, so each byte is looked at once.
_ESCAPES = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    "|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?"  # OSC, DCS, SOS, PM, APC: title, links
    "|\x1b[ -/]*[0-~]?"  # two-character sequences, charset selection
)
_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def normalise_v1(output: bytes) -> str:
    """Text of `output` without what only a terminal understands."""
    text = _ESCAPES.sub("", output.decode("utf-8", errors="replace"))
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS).rstrip("\n")


def clip(text: str, bytes_max: int, *, bytes_lost: int = 0) -> str:
    """`text` within `bytes_max` UTF-8 bytes plus the note, which also counts `bytes_lost`: cut from the middle before.

    Raises:
        ValueError: `bytes_max` is below `SHOWN_BYTES_MIN`.
    """
    if bytes_max < SHOWN_BYTES_MIN:
        raise ValueError(f"bytes_max is {bytes_max}; at least {SHOWN_BYTES_MIN} are needed to show head and tail")
    encoded = text.encode("utf-8")
    if len(encoded) <= bytes_max and not bytes_lost:
        return text
    half = min(bytes_max, len(encoded)) // 2
    head = encoded[:half].decode("utf-8", errors="ignore")
    tail = encoded[max(half, len(encoded) - bytes_max // 2) :].decode("utf-8", errors="ignore")
    left_out = len(encoded) - len(head.encode()) - len(tail.encode()) + bytes_lost
    return f"{head}\n[{left_out} bytes left out]\n{tail}"


def show_v1(output: bytes, exit_code: int, bytes_max: int, *, bytes_lost: int = 0, stopped: str = "") -> str:
    """Normalised, clipped output; then on a line of its own `[exit N]` if N is not 0, or the limit that stopped it."""
    text = clip(normalise_v1(output), bytes_max, bytes_lost=bytes_lost)
    note = f"[stopped: {stopped}]" if stopped else f"[exit {exit_code}]" if exit_code else ""
    return f"{text}\n{note}" if text and note else text or note


class Show(Protocol):
    def __call__(
        self, output: bytes, exit_code: int, bytes_max: int, *, bytes_lost: int = 0, stopped: str = ""
    ) -> str: ...


NORMALISERS: Mapping[str, Show] = MappingProxyType({"v1": show_v1})
"""Every version that was ever used stays here: old transcripts are checked against it."""
