"""Replay level `decisions`: every decider again over the log, and each message it says held against the record."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.codec import body_digest, encode_body
from schemas.envelope import Event
from schemas.messages import (
    DraftCheckRequested,
    EnvCalibrated,
    Message,
    RolloutRequested,
    RunFinished,
    RunStarted,
    WorkParked,
    WorkResolved,
)
from schemas.outcomes import Nature, Purpose, Role
from schemas.pins import other_versions
from schemas.topology import decider_patterns
from services.kernel.decider import Policy
from services.kernel.log import matches
from services.observer.views.levels import Difference, LevelReport
from services.observer.views.source import Source

LEVEL = "decisions"
_SHOWN_CHARS = 2000
_Found = list[tuple[int, Difference]]
"""Differences, each with the position of the log where it shows."""


def decisions_level(source: Source, policies: Mapping[Role, Policy[Any]]) -> LevelReport:
    """Runs the given deciders; messages that only deciders say must all be said by them again, and no others.

    Raises: Unreadable where a record cannot be read: run the level `log` first.
    """
    recorded = {event.id: event for event in source.events()}
    began = next((event.body for event in recorded.values() if isinstance(event.body, RunStarted)), None)
    for role, policy in policies.items():
        if began is not None and (differing := other_versions(began, role, policy.VERSION)):
            return LevelReport(level=LEVEL, done=0, equal=False, not_reproducible="; ".join(differing))
    told: dict[str, _Decided] = {}
    unreached = 0
    found: _Found = []
    for role, policy in policies.items():
        decided = _decide_again(source, role, policy, told, found)
        unreached += _compare(role, decided, recorded, found)
    _nothing_extra(told, recorded, found)
    if found:
        first = min(found, key=lambda at: at[0])[1]
        return LevelReport(level=LEVEL, done=len(told), equal=False, first_difference=first)
    notes = (f"{unreached} messages were decided at the end and not said any more",) if unreached else ()
    return LevelReport(level=LEVEL, done=len(told), equal=True, notes=notes)


@dataclass(frozen=True)
class _Decided:
    message: Message
    digest: str
    by: Event
    role: Role


def _decide_again(
    source: Source, role: Role, policy: Policy[Any], told: dict[str, _Decided], found: _Found
) -> list[_Decided]:
    """In decided order. Recorded messages of the role itself are read as any other; they are never the answer."""
    patterns = decider_patterns(source.run, role)
    view = policy.initial()
    decided: list[_Decided] = []
    for event in source.events():
        if not any(matches(pattern, event.subject) for pattern in patterns):
            continue
        view = policy.fold(view, event)
        for message in policy.decide(view, event):
            new = _Decided(message, body_digest(message), event, role)
            earlier = told.setdefault(message.id, new)
            if earlier is new:
                decided.append(new)
            elif earlier.digest != new.digest:
                detail = f"decided twice, with other bodies, by {earlier.role} and {role}"
                found.append((event.seq, _difference("changed", new, detail)))
    return decided


def _compare(role: Role, decided: list[_Decided], recorded: Mapping[str, Event], found: _Found) -> int:
    """Returns how many of the last decided messages are not on the log, as when the run ended before them."""
    reached = max((place for place, d in enumerate(decided) if d.message.id in recorded), default=-1) + 1
    for again in decided[:reached]:
        event = recorded.get(again.message.id)
        if event is None:
            detail = f"{role} decides it at record {again.by.seq}, the log does not have it"
            found.append((again.by.seq, _difference("missing", again, detail)))
        elif event.body_digest != again.digest and not _may_differ(again, event):
            detail = f"the log says {_shown(event.body)}; {role} decides {_shown(again.message)}"
            found.append((event.seq, _difference("changed", again, detail, event)))
        elif event.seq < again.by.seq and _only_decided(event):
            detail = f"stands in the log before record {again.by.seq}, which it follows from"
            found.append((event.seq, _difference("changed", again, detail, event)))
    return len(decided) - reached


def _may_differ(again: _Decided, event: Event) -> bool:
    """Of two RunFinished the first wins; an answer that gives work up loses to a worker's own that came before it."""
    if isinstance(event.body, RunFinished):
        return True
    gives_up = isinstance(again.by.body, WorkParked | WorkResolved)
    return gives_up and event.body.nature is Nature.fact


def _nothing_extra(told: Mapping[str, _Decided], recorded: Mapping[str, Event], found: _Found) -> None:
    for event in recorded.values():
        if _only_decided(event) and event.id not in told:
            detail = f"no decider says it: {_shown(event.body)}"
            extra = Difference(what="added", seq=event.seq, message=event.body.name, id=event.id, detail=detail)
            found.append((event.seq, extra))


def _only_decided(event: Event) -> bool:
    """Is it a message that nobody but a decider says?"""
    match event.body:
        case RunFinished():
            return event.meta.service not in ("", Role.operator.value)
        case DraftCheckRequested() | RolloutRequested(purpose=Purpose.draft):
            return False
        case EnvCalibrated():
            return True
        case body:
            return body.nature in (Nature.decision, Nature.request)


def _shown(message: Message) -> str:
    text = encode_body(message).decode()
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."


def _difference(what: str, again: _Decided, detail: str, event: Event | None = None) -> Difference:
    seq = event.seq if event is not None else None
    return Difference(what=what, seq=seq, message=again.message.name, id=again.message.id, detail=detail)
