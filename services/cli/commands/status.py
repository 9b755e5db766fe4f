"""`envwheel status`: what a run is doing, from its log and from what its mesh says about itself."""

import argparse
import time
from collections import Counter
from pathlib import Path

import msgspec

from schemas.envelope import Event
from schemas.messages import WorkParked
from schemas.outcomes import Nature
from schemas.topology import EDGES
from services.cli.connect import open_run, started
from services.cli.folder import Child, RunFolder, State, find_run
from services.cli.live import COLUMNS, share_done, table_rows
from services.cli.outcome import Exit, say, say_json, say_table
from services.kernel.launch import BEAT_S, HEARTBEAT
from services.observer.policy import Progress
from services.observer.views.report import progress_of

STUCK_S = 6 * BEAT_S


class Process(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    pid: int | None
    alive: bool
    starts: int
    uid: int | None
    beat_s: float | None
    """Since its event loop last touched its heartbeat file; None where it has none."""
    last_error: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    folder: str
    running: bool
    pid: int | None
    url: str | None
    users: str | None
    base: str
    position: int
    """Records in the log."""
    round: int
    rounds: int
    done: float
    checkpoint_version: int
    pool_version: int
    pool_size: int
    finished: str | None
    parked: int
    open_requests: dict[str, int]
    """Requests without an answer yet, by message."""
    failures: dict[str, int]
    processes: tuple[Process, ...]


async def status(arguments: argparse.Namespace) -> int:
    folder = find_run(arguments.run)
    async with open_run(folder) as run:
        events = await run.events()
        progress = progress_of(events)
        told = folder.state() if run.live else None
        found = describe(folder, run.name, told, events, progress)
    if arguments.json:
        say_json(found)
        return Exit.ok
    _print(found, progress)
    return Exit.ok


def describe(folder: RunFolder, name: str, told: State | None, events: list[Event], progress: Progress) -> Status:
    began = started(events)
    children = told.children if told else {}
    return Status(
        run=name,
        folder=str(folder.root),
        running=told is not None,
        pid=told.pid if told else None,
        url=told.url if told else None,
        users=told.users if told else None,
        base=f"{began.base_kind} {began.base_digest[:16]}",
        position=len(events),
        round=progress.round,
        rounds=began.science.rounds,
        done=share_done(progress),
        checkpoint_version=progress.checkpoint_version,
        pool_version=progress.pool_version,
        pool_size=progress.pool_size,
        finished=progress.finished,
        parked=len(parked(events)),
        open_requests=open_requests(events),
        failures=dict(progress.failures),
        processes=tuple(_process(folder, name, child) for name, child in sorted(children.items())),
    )


def parked(events: list[Event]) -> dict[str, WorkParked]:
    """Parked work by its id, less what was resolved since."""
    found: dict[str, WorkParked] = {}
    for event in events:
        body = event.body
        if isinstance(body, WorkParked):
            found[body.work_id] = body
        elif body.name == "work_resolved":
            found.pop(str(body.key()[0]), None)
    return found


def open_requests(events: list[Event]) -> dict[str, int]:
    """Requests that no fact names as its cause yet, by message."""
    answered = {event.meta.cause for event in events if event.body.nature is Nature.fact}
    waiting = Counter(
        event.body.name
        for event in events
        if EDGES[event.body.name].work_for and event.body.nature is Nature.request and event.id not in answered
    )
    return dict(sorted(waiting.items()))


def _process(folder: RunFolder, name: str, child: Child) -> Process:
    alive = child.pid is not None and Path(f"/proc/{child.pid}").exists()
    return Process(
        name=name,
        pid=child.pid,
        alive=alive,
        starts=child.starts,
        uid=child.uid,
        beat_s=_beat_s(folder.services / name / HEARTBEAT),
        last_error=child.last_error,
    )


def _beat_s(file: Path) -> float | None:
    try:
        return round(max(0.0, time.time() - file.stat().st_mtime), 1)
    except (FileNotFoundError, PermissionError):
        return None


def _state(process: Process) -> str:
    if not process.alive:
        return "gone"
    return "stuck" if process.beat_s is not None and process.beat_s > STUCK_S else "alive"


def _print(found: Status, progress: Progress) -> None:
    state = "running" if found.running else "finished" if found.finished else "stopped"
    say(f"run {found.run}: {state}, round {found.round + 1} of {found.rounds}, {found.done:.0%} done")
    say(f"folder {found.folder}")
    say(f"base {found.base}" + (f", users {found.users}, server {found.url}" if found.running else ""))
    say(
        f"log {found.position} records, pool version {found.pool_version} with {found.pool_size} environments, "
        f"checkpoint {found.checkpoint_version}, parked work {found.parked}"
    )
    if found.finished:
        say(f"finished: {found.finished}")
    if found.open_requests:
        say("open: " + ", ".join(f"{name} {count}" for name, count in found.open_requests.items()))
    if found.failures:
        say("failed tries: " + ", ".join(f"{kind} {count}" for kind, count in found.failures.items()))
    say()
    say_table(COLUMNS[:-1], [row[:-1] for row in table_rows(progress)])
    if found.processes:
        say()
        rows = [
            (each.name, str(each.pid or "-"), _state(each), str(each.starts), each.last_error)
            for each in found.processes
        ]
        say_table(("process", "pid", "state", "starts", "last error"), rows)
