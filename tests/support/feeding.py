"""Feeding bodies to a policy one by one, as a decider would."""

from types import ModuleType
from typing import Any

from schemas.codec import decode, encode
from schemas.envelope import Event, Meta
from schemas.messages import Message


def as_event(body: Message) -> Event:
    return decode(encode(body, Meta()))


def feed(policy: ModuleType, view: Any, *bodies: Message) -> list[Message]:
    """What the policy says to these bodies, in order."""
    said: list[Message] = []
    for body in bodies:
        event = as_event(body)
        policy.fold(view, event)
        said += policy.decide(view, event)
    return said
