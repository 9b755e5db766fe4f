"""What a gate is: one check of one environment, with its evidence."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Protocol

import msgspec

from schemas.outcomes import GateOutcome
from schemas.science import GateRules
from services.kernel.archive import FileEntry
from services.kernel.harbor.grade import Grade
from services.kernel.harbor.task import HarborTask
from services.kernel.heldout.grams import Grams
from services.kernel.sandbox.protocol import Image
from services.kernel.workshop import Workshop

DETAIL_CHARS_MAX = 2000


class Cost(IntEnum):
    """Gates run cheapest first; those of one class run at the same time."""

    reading = 0
    comparing = 1
    building = 2
    running = 3
    repeating = 4


class Need(StrEnum):
    """A field of the case that an earlier gate fills in."""

    files = "files"
    task = "task"
    image = "image"
    oracle = "oracle"
    noop = "noop"


@dataclass
class Case:
    """One environment on its way through the gates. Later gates find here what earlier ones made."""

    digest: str
    archive: bytes
    workshop: Workshop
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    """Of the archive; the gate `well-formed` unpacks it."""
    grams: Grams = field(default_factory=dict)
    """Digests of the held-out instructions' grams, by length in words."""
    pool: Mapping[str, str] = field(default_factory=dict)
    """Sketches of the pool's members, by environment."""
    duplicate_similarity: float = 0.8
    rules: GateRules = field(default_factory=GateRules)
    task: HarborTask | None = None
    image: Image | None = None
    sketch: str | None = None
    oracle: Grade | None = None
    """What the reference solution earned."""
    noop: Grade | None = None
    """What an untouched environment earned."""

    def has(self, needs: Iterable[Need]) -> bool:
        return all(getattr(self, need) not in (None, {}) for need in needs)

    def known_task(self) -> HarborTask:
        if self.task is None:
            raise ValueError("the gate `well-formed` comes first")
        return self.task

    def known_image(self) -> Image:
        if self.image is None:
            raise ValueError("the gate `builds` comes first")
        return self.image


@dataclass(frozen=True)
class Finding:
    """What a gate found. `content` follows from the environment alone; `observed` is what was seen on the way."""

    outcome: GateOutcome
    detail: str = ""
    content: Mapping[str, Any] = field(default_factory=dict)
    observed: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """The environment's author has a say in what a detail quotes, and a message carries it."""
        if len(self.detail) > DETAIL_CHARS_MAX:
            object.__setattr__(self, "detail", self.detail[: DETAIL_CHARS_MAX - 1] + "…")

    def content_bytes(self) -> bytes:
        return msgspec.json.encode(dict(self.content), order="deterministic")

    def observed_bytes(self) -> bytes:
        return msgspec.json.encode(dict(self.observed), order="deterministic")


def passed(detail: str = "", **content: Any) -> Finding:
    return Finding(GateOutcome.passed, detail, content)


def failed(detail: str, **content: Any) -> Finding:
    return Finding(GateOutcome.failed, detail, content)


class Gate(Protocol):
    """One check. Stateless; what it needs is in the case."""

    @property
    def name(self) -> str: ...

    @property
    def cost(self) -> Cost: ...

    @property
    def hidden(self) -> bool:
        """Its evidence is not shown to the proposer of a draft."""
        ...

    @property
    def needs(self) -> tuple[Need, ...]:
        """Without these in the case the gate is skipped."""
        ...

    async def check(self, case: Case) -> Finding:
        """Raises SandboxError for infrastructure trouble; everything that is the environment's doing is a finding."""
        ...
