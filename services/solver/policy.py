"""What the solver's decider says: masked answers for rollouts that nobody could run. Pure."""

from dataclasses import dataclass, field

from schemas.envelope import Event
from schemas.messages import Message, RolloutCompleted, RolloutRequested, RunFinished, RunStarted
from schemas.outcomes import Role
from schemas.parked import OpenWork

VERSION = 1


@dataclass
class View:
    finished: bool = False
    work: OpenWork = field(default_factory=lambda: OpenWork(Role.solver, (RolloutRequested,)))
    seen: set[str] = field(default_factory=set)
    decided: tuple[str, tuple[Message, ...]] = ("", ())


def initial() -> View:
    return View()


def fold(view: View, event: Event) -> View:
    """Take one event in. The messages that follow from it are kept for `decide`."""
    if event.id in view.seen:
        return view
    view.seen.add(event.id)
    view.decided = (event.id, tuple(_react(view, event)))
    return view


def decide(view: View, event: Event) -> list[Message]:
    """The messages that follow from the event just folded; nothing for an event that was folded before."""
    return list(view.decided[1]) if view.decided[0] == event.id else []


def _react(view: View, event: Event) -> list[Message]:
    body = event.body
    said = view.work.fold(event.id, body)
    match body:
        case RunStarted():
            view.work.give_up = body.science.failures.parked == "give_up"
        case RunFinished():
            view.finished = True
        case RolloutCompleted():
            view.work.close(body.request)
        case _:
            pass
    return [] if view.finished else said
