"""Subjects: `<run>.<message>.<round>.<lane>.<id>`, all in lower case. The subject decides what exists once."""

import re
from dataclasses import dataclass

from schemas.messages import BY_NAME, Message

RUN_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class BadSubjectError(ValueError):
    """A run name or subject that does not follow the grammar."""


@dataclass(frozen=True, slots=True)
class Subject:
    run: str
    message: str
    round: int
    lane: str
    id: str

    def __str__(self) -> str:
        return f"{self.run}.{self.message}.{self.round}.{self.lane}.{self.id}"


def check_run(run: str) -> str:
    if not RUN_NAME.fullmatch(run):
        raise BadSubjectError(f"run name {run!r}: use at most 63 of a-z, 0-9, '-', '_', a letter or digit first")
    return run


def subject_of(run: str, message: Message) -> str:
    return str(Subject(run, message.name, message.round, message.lane(), message.id))


def parse_subject(text: str) -> Subject:
    parts = text.split(".")
    if len(parts) != 5 or parts[1] not in BY_NAME or not parts[2].isdigit():
        raise BadSubjectError(f"subject {text!r} is not <run>.<message>.<round>.<lane>.<id>")
    return Subject(parts[0], parts[1], int(parts[2]), parts[3], parts[4])


def pattern(run: str, message: str, *, lane: str = "*") -> str:
    """The NATS pattern of one message (and lane) in one run."""
    return f"{run}.{message}.*.{lane}.*"
