"""`envwheel roster` and `envwheel swap`: who plays which role, and another one instead."""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from schemas.envelope import Event
from schemas.messages import EnvAbandoned, EnvProposed, EnvRequested, RosterChanged, RoundPlanned, RunFinished
from schemas.models import ModelRules
from schemas.outcomes import Role
from schemas.parts import Arm, RosterEntry
from schemas.roster import in_force, same_maker
from services.cli.connect import open_run, say_next, started
from services.cli.folder import find_run
from services.cli.outcome import CliError, Exit, say, say_json, say_table


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of one change of the roster."""

    change: int
    role: str
    since: str
    state: str
    """`plays`, `will play` from a round to come, or `past`."""
    in_flight: int
    """Requests under this entry that nobody has answered yet; those bound before a change keep the entry they had."""
    entry: RosterEntry


async def roster(arguments: argparse.Namespace) -> int:
    async with open_run(find_run(arguments.run)) as run:
        places = places_of(await run.events())
    if arguments.json:
        say_json(places)
        return Exit.ok
    rows = [
        (str(each.change), each.role, each.since, each.state, each.entry.name, each.entry.model, each.entry.arm,
         f"{each.entry.share:g}", str(each.in_flight))
        for each in places
    ]  # fmt: skip
    say_table(("change", "role", "since", "state", "name", "model", "arm", "share", "in flight"), rows)
    return Exit.ok


async def swap_proposer(arguments: argparse.Namespace) -> int:
    """The share below 1 is of all work: the present ones keep the rest, in their old proportions."""
    folder = find_run(arguments.run)
    new = new_entry(arguments.name, arguments.arm, arguments.endpoint_model, folder.file().models)
    if arguments.from_round is not None and arguments.from_round < 0:
        raise CliError(f"--from-round {arguments.from_round}: at least 0")
    async with open_run(folder) as run:
        events = await run.events()
        started(events)
        if any(isinstance(event.body, RunFinished) for event in events):
            raise CliError("this run has finished: nothing is asked for in it any more")
        changes = [event.body for event in changes_of(events) if isinstance(event.body, RosterChanged)]
        present = entries_of(changes, arguments.from_round if arguments.from_round is not None else round_of(events))
        entries = shared_out(present, new, arguments.share)
        said = await say_next(
            run,
            changes[-1].ordinal + 1,
            lambda ordinal: RosterChanged(
                ordinal=ordinal, role=Role.proposer, entries=entries, from_round=arguments.from_round
            ),
        )
    when = "at the next request" if arguments.from_round is None else f"from round {arguments.from_round}"
    told = ", ".join(f"{each.name} ({each.arm}) {each.share:.2f}" for each in entries)
    say(f"proposers {when}: {told} ({said.id[:16]})")
    for undone in undone_by(changes, arguments.from_round, round_of(events)):
        say(f"the change {undone.ordinal}, said for round {undone.from_round}, does not take place any more")
    return Exit.ok


def new_entry(name: str, arm: Arm, endpoint_model: str | None, models: Mapping[str, ModelRules]) -> RosterEntry:
    """A built-in brain of that name, or a model of `[models.…]` in run.toml, whose settings go along.

    Raises:
        CliError: there is neither.
    """
    from services.proposer.authoring.procedural import BRAINS

    if endpoint_model is None and name in BRAINS:
        return RosterEntry(name=name, model=name, arm=arm)
    rules = models.get(endpoint_model or name)
    if rules is None:
        known = ", ".join(sorted(models)) or "none"
        raise CliError(
            f"no proposer {endpoint_model or name!r}: built in are {', '.join(sorted(BRAINS))}; models behind "
            f"endpoints in this run's run.toml: {known} (a table [models.NAME] with endpoint and model makes one)"
        )
    if name in BRAINS:
        raise CliError(f"{name} is a built-in brain: give the model another name")
    return RosterEntry(name=name, model=rules.model, arm=arm, rules=rules)


def shared_out(present: tuple[RosterEntry, ...], new: RosterEntry, share: float) -> tuple[RosterEntry, ...]:
    """The new entry with its share of all work; at share 1 it is alone. It takes the place of the one of its name and
    arm. Shares sum to 1.
    """
    if share >= 1:
        return (new,)
    kept = [entry for entry in present if (entry.name, entry.arm) != (new.name, new.arm)]
    if not kept:
        raise CliError(f"{new.name} is the only proposer: there is nobody to share with")
    whole = sum(entry.share for entry in kept)
    rest = [replace(entry, share=round(entry.share / whole * (1 - share), 6)) for entry in kept]
    return (*rest, replace(new, share=share))


def changes_of(events: Sequence[Event]) -> list[Event]:
    """RosterChanged in the order of their ordinals."""
    found = [event for event in events if isinstance(event.body, RosterChanged)]
    return sorted(found, key=lambda event: event.body.key())


def entries_of(changes: Sequence[RosterChanged], round_: int) -> tuple[RosterEntry, ...]:
    """The proposers of a round, by what is said so far."""
    change = in_force(changes, Role.proposer, round_)
    return change.entries if change else ()


def undone_by(changes: Sequence[RosterChanged], from_round: int | None, round_: int) -> list[RosterChanged]:
    """Changes said for rounds to come that a newer one, which holds from an earlier round on, takes the place of."""
    begins = round_ if from_round is None else from_round
    later = (change for change in changes if change.role is Role.proposer and change.from_round is not None)
    return [change for change in later if (change.from_round or 0) > round_ and (change.from_round or 0) >= begins]


def round_of(events: Sequence[Event]) -> int:
    """The round that is planned now; 0 before any is."""
    return max((event.body.round for event in events if isinstance(event.body, RoundPlanned)), default=0)


def places_of(events: Sequence[Event]) -> list[Place]:
    """Every entry of every change, in the order they were said."""
    changes = changes_of(events)
    bodies = [event.body for event in changes if isinstance(event.body, RosterChanged)]
    round_, open_ = round_of(events), _open(events)
    places = []
    for number, event in enumerate(changes):
        body = bodies[number]
        if in_force(bodies, body.role, round_) is body:
            state = "plays"
        else:
            to_come = body.from_round is not None and in_force(bodies, body.role, body.from_round) is body
            state = "will play" if to_come and (body.from_round or 0) > round_ else "past"
        for entry in body.entries:
            # Changes often name an entry again: its open work is shown once, at the newest of them.
            newest = not any(same_maker(entry, other) for later in bodies[number + 1 :] for other in later.entries)
            places.append(
                Place(
                    change=body.ordinal,
                    role=body.role.value,
                    since=_since(event, body),
                    state=state,
                    in_flight=open_[_maker(entry)] if newest else 0,
                    entry=entry,
                )
            )
    return places


def _open(events: Sequence[Event]) -> Counter[bytes]:
    waiting: dict[tuple[object, ...], RosterEntry] = {}
    for event in events:
        match event.body:
            case EnvRequested() as body:
                waiting[body.key()] = body.entry
            case EnvProposed() | EnvAbandoned() as body:
                waiting.pop(body.key(), None)
            case _:
                pass
    return Counter(_maker(entry) for entry in waiting.values())


def _maker(entry: RosterEntry) -> bytes:
    """Equal for entries that differ in their share alone."""
    return msgspec.json.encode(replace(entry, share=1.0), order="deterministic")


def _since(event: Event, body: RosterChanged) -> str:
    return f"position {event.seq}" if body.from_round is None else f"round {body.from_round}"
