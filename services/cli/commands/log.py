"""`envwheel log`: read, check and export the event log."""

import argparse
import asyncio
import json
from datetime import UTC, datetime
from itertools import chain

from schemas.codec import CodecError, decode, raw_body
from schemas.messages import BY_NAME
from services.cli.connect import OpenRun, open_run, pick
from services.cli.folder import find_run
from services.cli.outcome import CliError, Exit, say, say_json
from services.kernel.log import Stored

LINE_CHARACTERS_MAX = 160
LOOK_EVERY_S = 0.2
"""Does the mesh still run?"""


async def tail(arguments: argparse.Namespace) -> int:
    wanted = {_message_name(name) for name in arguments.type}
    async with open_run(find_run(arguments.run)) as run:
        last = await run.log.last_seq()
        # Of a few messages only, the last N may lie far back.
        shown = [each async for each in run.log.read() if not wanted or each.subject.split(".")[1] in wanted]
        follows = run.live and not arguments.no_follow
        for stored in shown[-arguments.lines :] if arguments.lines > 0 else []:
            _print(stored, arguments.json)
        if follows:
            await _follow(run, last, wanted, as_json=arguments.json)
    return Exit.ok


async def show(arguments: argparse.Namespace) -> int:
    async with open_run(find_run(arguments.run)) as run:
        records = await run.records()
    by_seq = {str(stored.seq): stored for stored in records}
    stored = by_seq.get(arguments.record)
    if stored is None:
        if arguments.record.isdigit() and len(arguments.record) < 6:
            raise CliError(f"no record at position {arguments.record}: the log has {len(records)}")
        id_ = pick("record", arguments.record, [each.id for each in records])
        stored = next(each for each in records if each.id == id_)
    say_json(
        {
            "position": stored.seq,
            "subject": stored.subject,
            "appended_at": _time(stored.appended_at_ns),
            "record": json.loads(stored.data),
        }
    )
    return Exit.ok


async def verify(arguments: argparse.Namespace) -> int:
    """The replay level `log` alone."""
    from services.cli.commands.audit import replay

    arguments.level = ["log"]
    return await replay(arguments)


async def export(arguments: argparse.Namespace) -> int:
    from services.observer.views.export import write_export
    from services.observer.views.source import read_log

    async with open_run(find_run(arguments.run)) as run:
        head = write_export(await read_log(run.name, run.log, run.artifacts), arguments.to)
    say(f"{head.records} records and their artifacts are in {arguments.to}")
    return Exit.ok


async def _follow(run: OpenRun, last: int, wanted: set[str], *, as_json: bool) -> None:
    """Until the mesh ends: its server goes with it, and a reader would wait for another one for ever."""
    reading = asyncio.create_task(_print_newer(run, last, wanted, as_json=as_json))
    try:
        while run.folder.is_running() and not reading.done():
            await asyncio.wait([reading], timeout=LOOK_EVERY_S)
        if reading.done():
            await reading
    finally:
        reading.cancel()


async def _print_newer(run: OpenRun, after: int, wanted: set[str], *, as_json: bool) -> None:
    async for stored in run.log.read(after, follow=True):
        if not wanted or stored.subject.split(".")[1] in wanted:
            _print(stored, as_json)


def _message_name(name: str) -> str:
    """`EnvProposed` and `env_proposed` are the same."""
    known = dict(chain.from_iterable(((each, each), (kind.__name__, each)) for each, kind in BY_NAME.items()))
    if name not in known:
        raise CliError(f"no message {name!r}: {', '.join(kind.__name__ for kind in BY_NAME.values())}")
    return known[name]


def _print(stored: Stored, as_json: bool) -> None:
    if as_json:
        say(json.dumps({"position": stored.seq, "subject": stored.subject, "record": json.loads(stored.data)}))
        return
    try:
        event = decode(stored.data, subject=stored.subject, seq=stored.seq)
        name = type(event.body).__name__
        who = "-".join(part for part in (event.meta.service or "operator", event.meta.replica) if part)
        body = raw_body(stored.data).decode()
    except CodecError as error:
        name, who, body = "?", "?", str(error)
    line = f"{stored.seq:>7} {_time(stored.appended_at_ns)} {name:<20} {who:<14} {stored.id[:12]} {body}"
    say(line if len(line) <= LINE_CHARACTERS_MAX else line[: LINE_CHARACTERS_MAX - 1] + "…")


def _time(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
