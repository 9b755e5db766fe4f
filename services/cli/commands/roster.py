"""`envwheel roster` and `envwheel swap`: who plays which role, and another one instead."""

import argparse

from msgspec.structs import replace

from schemas.envelope import Event
from schemas.messages import RosterChanged, RunFinished
from schemas.outcomes import Role
from schemas.parts import RosterEntry
from services.cli.connect import open_run, say_next, started
from services.cli.folder import find_run
from services.cli.outcome import CliError, Exit, say, say_json, say_table


async def roster(arguments: argparse.Namespace) -> int:
    async with open_run(find_run(arguments.run)) as run:
        changes = changes_of(await run.events())
    if arguments.json:
        say_json([event.body for event in changes])
        return Exit.ok
    rows = [
        (str(body.ordinal), body.role.value, _since(event, body), each.name, each.model, each.arm, f"{each.share:g}")
        for event in changes
        if isinstance(body := event.body, RosterChanged)
        for each in body.entries
    ]
    say_table(("change", "role", "since", "name", "model", "arm", "share"), rows)
    return Exit.ok


async def swap_proposer(arguments: argparse.Namespace) -> int:
    """The share below 1 is of all work: the present ones keep the rest, in their old proportions."""
    from services.proposer.authoring.procedural import BRAINS

    if arguments.name not in BRAINS:
        raise CliError(f"no proposer {arguments.name!r}: known are {', '.join(sorted(BRAINS))}")
    if arguments.from_round is not None and arguments.from_round < 0:
        raise CliError(f"--from-round {arguments.from_round}: at least 0")
    async with open_run(find_run(arguments.run)) as run:
        events = await run.events()
        started(events)
        if any(isinstance(event.body, RunFinished) for event in events):
            raise CliError("this run has finished: nothing is asked for in it any more")
        changes = [event.body for event in changes_of(events) if isinstance(event.body, RosterChanged)]
        new = RosterEntry(name=arguments.name, model=arguments.name, arm=arguments.arm)
        entries = shared_out(changes[-1].entries, new, arguments.share)
        said = await say_next(
            run,
            changes[-1].ordinal + 1,
            lambda ordinal: RosterChanged(
                ordinal=ordinal, role=Role.proposer, entries=entries, from_round=arguments.from_round
            ),
        )
    when = "at the next request" if arguments.from_round is None else f"from round {arguments.from_round}"
    say(f"proposers {when}: {', '.join(f'{each.name} {each.share:.2f}' for each in entries)} ({said.id[:16]})")
    return Exit.ok


def shared_out(present: tuple[RosterEntry, ...], new: RosterEntry, share: float) -> tuple[RosterEntry, ...]:
    """The new entry with its share of all work; at share 1 it is alone. Shares sum to 1."""
    if share >= 1:
        return (new,)
    kept = [entry for entry in present if entry.name != new.name]
    if not kept:
        raise CliError(f"{new.name} is the only proposer: there is nobody to share with")
    whole = sum(entry.share for entry in kept)
    rest = [replace(entry, share=round(entry.share / whole * (1 - share), 6)) for entry in kept]
    return (*rest, replace(new, share=share))


def changes_of(events: list[Event]) -> list[Event]:
    """RosterChanged in the order of their ordinals."""
    found = [event for event in events if isinstance(event.body, RosterChanged)]
    return sorted(found, key=lambda event: event.body.key())


def _since(event: Event, body: RosterChanged) -> str:
    return f"position {event.seq}" if body.from_round is None else f"round {body.from_round}"
