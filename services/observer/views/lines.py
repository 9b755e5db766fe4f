"""Records as text, one JSON line each: how sealed segments and exports keep them, byte for byte."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator

import msgspec

from services.kernel.log import Stored


class LineError(ValueError):
    """Not a line that `encode_line` writes."""


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    seq: int
    subject: str
    appended_at_ns: int
    record: msgspec.Raw = msgspec.Raw(b"null")
    """The record as it is, where it is JSON on one line."""
    base64: str | None = None
    """Any other record."""


_decoder = msgspec.json.Decoder(_Line)


def encode_line(stored: Stored) -> bytes:
    """Ends with a newline."""
    if _is_plain_json(stored.data):
        line = _Line(stored.seq, stored.subject, stored.appended_at_ns, msgspec.Raw(stored.data))
    else:
        text = b64encode(stored.data).decode()
        line = _Line(stored.seq, stored.subject, stored.appended_at_ns, base64=text)
    return msgspec.json.encode(line) + b"\n"


def decode_line(line: bytes) -> Stored:
    """Raises: LineError."""
    try:
        said = _decoder.decode(line)
        data = bytes(said.record) if said.base64 is None else b64decode(said.base64, validate=True)
    except ValueError as error:
        raise LineError(f"not a record line: {error}") from error
    return Stored(said.seq, said.subject, data, said.appended_at_ns)


def encode_lines(records: Iterable[Stored]) -> bytes:
    return b"".join(encode_line(record) for record in records)


def decode_lines(text: bytes) -> Iterator[Stored]:
    """Raises: LineError, with the number of the line."""
    lines = text.removesuffix(b"\n").split(b"\n") if text else []
    for number, line in enumerate(lines, 1):
        try:
            yield decode_line(line)
        except LineError as error:
            raise LineError(f"line {number}: {error}") from error


def _is_plain_json(data: bytes) -> bool:
    if b"\n" in data or b"\r" in data:
        return False
    try:
        return bytes(msgspec.json.decode(data, type=msgspec.Raw)) == data and data != b"null"
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
