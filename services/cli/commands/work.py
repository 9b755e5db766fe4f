"""`envwheel work`: parked work, and the operator's decision on it."""

import argparse

from schemas.messages import WorkParked, WorkResolved
from schemas.outcomes import Resolution
from services.cli.commands.status import parked
from services.cli.connect import open_run, pick, say_next
from services.cli.folder import find_run
from services.cli.outcome import Exit, say, say_json, say_table


async def list_work(arguments: argparse.Namespace) -> int:
    async with open_run(find_run(arguments.run)) as run:
        found = parked(await run.events())
    if arguments.json:
        say_json(list(found.values()))
        return Exit.ok
    if not found:
        say("no work is parked")
        return Exit.ok
    rows = [
        (id_[:16], note.role.value, note.subject.split(".")[1], str(note.round), str(note.try_), note.reason)
        for id_, note in found.items()
    ]
    say_table(("work", "role", "message", "round", "tries", "reason"), rows)
    return Exit.ok


async def retry(arguments: argparse.Namespace) -> int:
    return await _resolve(arguments, Resolution.retry)


async def give_up(arguments: argparse.Namespace) -> int:
    return await _resolve(arguments, Resolution.give_up)


async def _resolve(arguments: argparse.Namespace, action: Resolution) -> int:
    async with open_run(find_run(arguments.run)) as run:
        events = await run.events()
        notes = parked(events)
        note: WorkParked = notes[pick("parked work", arguments.work, list(notes))]
        first = sum(isinstance(event.body, WorkResolved) and event.body.work_id == note.work_id for event in events)
        said = await say_next(
            run,
            first,
            lambda ordinal: WorkResolved(
                round=note.round,
                work_id=note.work_id,
                ordinal=ordinal,
                role=note.role,
                subject=note.subject,
                action=action,
            ),
        )
    say(f"{action.value.replace('_', ' ')}: {note.work_id[:16]} ({note.role.value}), said as {said.id[:16]}")
    if not run.live:
        say("the mesh does not run; it acts on this at the next `envwheel up`")
    return Exit.ok
