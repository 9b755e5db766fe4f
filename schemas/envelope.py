"""The envelope: CloudEvents 1.0 structured JSON with `data = {body, meta}`."""

from dataclasses import dataclass, field

import msgspec

from schemas.messages import Message


class Meta(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What was observed on the way. Never part of an id, a comparison or the round digest."""

    at_ns: int = 0
    """Wall clock of the sayer, nanoseconds since 1970."""
    host: str = ""
    service: str = ""
    replica: str = ""
    cause: str | None = None
    """Id of the message that this one answers or follows from."""
    try_: int | None = msgspec.field(name="try", default=None)
    """The try that an answer of a worker comes from."""
    started_ns: int | None = None
    """When the work behind a fact began."""
    cpu_s: float | None = None
    wall_s: float | None = None
    sandbox_cpu_s: float | None = None
    observation: str | None = None
    """Digest of the observation artifact: raw output, durations."""
    observations: dict[str, str] = {}
    engine: str | None = None
    deployment: dict[str, str] = {}
    money_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A decoded record, as folds and handlers see it."""

    id: str
    body: Message
    body_digest: str
    """sha256 of the raw bytes of the body."""
    meta: Meta = field(default_factory=Meta)
    subject: str = ""
    seq: int = 0
    """Position in the stream. For errors and views only: no decision may depend on it."""
