"""Bytes to events and back. Unknown type, version or field is an error; old versions are upgraded by pure functions."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec

from schemas.envelope import Event, Meta
from schemas.messages import BY_NAME, MESSAGES, Message

TYPE_PREFIX = "envwheel."


class CodecError(ValueError):
    """The bytes are not a message that this code may read. The record stays as it is; the reader parks or stops."""


class _Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    body: msgspec.Raw
    meta: Meta


class _CloudEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    specversion: str
    id: str
    source: str
    type: str
    datacontenttype: str
    data: _Data


UPGRADES: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""(message, version) -> function from that version's body to the next one's."""

_encoder = msgspec.json.Encoder(order="deterministic")
_envelopes = msgspec.json.Decoder(_CloudEvent)
_bodies = {message.name: msgspec.json.Decoder(message) for message in MESSAGES}


def encode_body(message: Message) -> bytes:
    """Canonical bytes of a body. Refuses what would not read back equal (NaN, infinities).

    Raises:
        CodecError: a number is not finite, or a value is out of its bounds.
    """
    raw = _encoder.encode(message)
    try:
        same = _bodies[message.name].decode(raw) == message
    except msgspec.ValidationError as error:
        raise CodecError(f"{message.name}: {error}; are all numbers finite?") from error
    if not same:
        raise CodecError(f"{message.name}: the body does not read back as it was written")
    return raw


def body_digest(message: Message) -> str:
    return sha256(encode_body(message)).hexdigest()


def encode(message: Message, meta: Meta) -> bytes:
    """The record of a message: CloudEvents 1.0 structured JSON."""
    return _encoder.encode(
        _CloudEvent(
            specversion="1.0",
            id=message.id,
            source=f"/envwheel/{meta.service or 'operator'}",
            type=f"{TYPE_PREFIX}{message.name}.v{message.version}",
            datacontenttype="application/json",
            data=_Data(body=msgspec.Raw(encode_body(message)), meta=meta),
        )
    )


def decode(data: bytes, *, subject: str = "", seq: int = 0) -> Event:
    """Read one record.

    Raises:
        CodecError: not CloudEvents JSON, an unknown type, version or field, or an id that the body does not give.
    """
    where = f"record {seq} ({subject})" if subject else "record"
    try:
        envelope = _envelopes.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CodecError(f"{where}: not an envwheel record: {error}") from error
    name, version = _split_type(envelope.type, where)
    raw = bytes(envelope.data.body)
    body = _decode_body(name, version, raw, where)
    if body.id != envelope.id:
        raise CodecError(f"{where}: id {envelope.id[:16]} is not that of this {name} ({body.id[:16]})")
    return Event(body.id, body, sha256(raw).hexdigest(), envelope.data.meta, subject, seq)


def raw_body(data: bytes) -> bytes:
    """The bytes of the body as they stand in a record."""
    try:
        return bytes(_envelopes.decode(data).data.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CodecError(f"not an envwheel record: {error}") from error


def same_body(one: bytes, other: bytes) -> bool:
    """Do two records say the same? Meta is left out."""
    return raw_body(one) == raw_body(other)


def _split_type(type_: str, where: str) -> tuple[str, int]:
    name, dot, version = type_.removeprefix(TYPE_PREFIX).rpartition(".v")
    if not type_.startswith(TYPE_PREFIX) or not dot or name not in BY_NAME or not version.isdigit():
        raise CodecError(f"{where}: unknown message type {type_!r}")
    return name, int(version)


def _decode_body(name: str, version: int, raw: bytes, where: str) -> Message:
    current = BY_NAME[name].version
    try:
        if version == current:
            return _bodies[name].decode(raw)
        old: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, Any])
        for step in range(version, current):
            if (name, step) not in UPGRADES:
                raise CodecError(f"{where}: {name} version {step} cannot be read by this code")
            old = UPGRADES[name, step](old)
        if version > current:
            raise CodecError(f"{where}: {name} version {version} is newer than this code ({current}): upgrade envwheel")
        return msgspec.convert(old, BY_NAME[name])
    except msgspec.MsgspecError as error:
        raise CodecError(f"{where}: {name}: {error}") from error
