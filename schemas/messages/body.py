"""The base of all message bodies."""

from typing import ClassVar

from schemas.identity import Part, event_id
from schemas.outcomes import Nature
from schemas.science import Section


class Message(Section, frozen=True, kw_only=True):
    """Base of all bodies."""

    name: ClassVar[str]
    version: ClassVar[int] = 1
    nature: ClassVar[Nature]

    round: int = 0

    def key(self) -> tuple[Part, ...]:
        """The logical key; with the name it decides the id."""
        raise TypeError(f"{type(self).__name__} has no logical key")

    def lane(self) -> str:
        """The subject's fourth token: a purpose, a role, or `-`."""
        return "-"

    @property
    def id(self) -> str:
        return event_id(self.name, self.key())
