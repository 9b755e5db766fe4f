"""`envwheel demo`, `up` and `stop`."""

import argparse
import asyncio
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from schemas.messages import RunFinished
from services.cli.folder import RUNS, RunFolder, find_run
from services.cli.outcome import CliError, Exit, say
from services.cli.profiles import profile_names, profile_text
from services.kernel.runfile import RunFile, read_runfile

STOP_WAIT_S = 8.0
BUILT_BASE = Path("bases/default")
"""Where `envwheel base build` puts a base; `base = "auto"` takes it where it is there."""


async def demo(arguments: argparse.Namespace) -> int:
    """A new run of the profile `demo`, with its report and its replay."""
    file = read_runfile(profile_text("demo"), where="profile demo", profile=profile_text)
    root = arguments.folder or _free_folder("demo")
    return await _turn(RunFolder(root), _named(file, root, arguments))


async def up(arguments: argparse.Namespace) -> int:
    """Resumes the run in the folder where there is one; else starts a new one there."""
    from services.cli.seeds import read_archives

    if arguments.config is None:
        folder = RunFolder(arguments.folder) if arguments.folder else find_run(None)
        if not folder.exists():
            raise CliError(
                f"{folder.root} holds no run to resume: start one with `envwheel up -c run.toml`; "
                f"shipped profiles to begin from: {', '.join(profile_names())}"
            )
        return await _turn(folder, _named(folder.file(), folder.root, arguments))
    try:
        text = arguments.config.read_text()
    except OSError as error:
        raise CliError(f"{arguments.config}: {error.strerror}") from error
    file = read_runfile(text, where=str(arguments.config), profile=profile_text)
    name = file.deployment.name or arguments.config.absolute().parent.name
    root = arguments.folder or Path(file.deployment.folder) / name
    seeds = read_archives(arguments.import_) if arguments.import_ else {}
    return await _turn(RunFolder(root), _named(file, root, arguments), seeds)


async def stop(arguments: argparse.Namespace) -> int:
    """SIGTERM to the supervisor, and waits for it. With --finish the run is closed on its log first."""
    folder = find_run(arguments.run)
    if arguments.finish:
        await _finish(folder)
    holder = folder.holder()
    if holder is None or holder.purpose != "start":
        say(f"{folder.root.name} does not run")
        return Exit.ok
    if not arguments.finish:
        os.kill(holder.pid, signal.SIGTERM)
    # A finished run still gets its report and its replay from the `up` that runs it.
    until = time.monotonic() + STOP_WAIT_S
    while folder.is_running() and time.monotonic() < until:  # noqa: ASYNC110 - another process ends it
        await asyncio.sleep(0.05)
    if folder.is_running() and not arguments.finish:
        raise CliError(f"process {holder.pid} has not ended in {STOP_WAIT_S:g} s", Exit.infrastructure)
    say(f"{folder.root.name} {'is finishing: report and replay follow' if folder.is_running() else 'has ended'}")
    return Exit.ok


async def _finish(folder: RunFolder) -> None:
    from services.cli.connect import entry, open_run, started
    from services.kernel.log import LogConflict

    async with open_run(folder) as run:
        events = await run.events()
        if any(isinstance(event.body, RunFinished) for event in events):
            return
        # The round that the trainer would say it in: one subject for both, so that one of them is the first.
        message = RunFinished(round=started(events).science.rounds - 1, why="the operator ended it")
        try:
            await run.log.append([entry(run.name, message)])
        except LogConflict:
            # The trainer was first; the first one counts.
            return


async def _turn(folder: RunFolder, file: RunFile, seeds: Mapping[str, bytes] | None = None) -> int:
    from services.cli.summary import conclude
    from services.cli.turn import check_same, turn

    if folder.is_running():
        with folder.held("start"):
            pass
    if folder.exists():
        check_same(folder.file().science, file.science)
        folder.save(file)
    else:
        folder.create(file)
    async with turn(folder, file, seeds=seeds) as ended:
        if ended.finished:
            return await conclude(ended.run, ended.live.progress)
        say(f"stopped; `envwheel up --folder {_short(folder.root)}` goes on")
        return Exit.ok


def _named(file: RunFile, root: Path, arguments: argparse.Namespace) -> RunFile:
    """With what the command line says over the file, and a name."""
    changes: dict[str, object] = {"name": file.deployment.name or _name_of(root)}
    if getattr(arguments, "solvers", None) is not None:
        if arguments.solvers < 1:
            raise CliError(f"--solvers {arguments.solvers}: at least 1")
        changes["solvers"] = arguments.solvers
    if file.deployment.base == "auto":
        changes["base"] = str(BUILT_BASE.absolute()) if (BUILT_BASE / "base.json").is_file() else "host"
    seed = file.seed if arguments.seed is None else arguments.seed
    if seed < 0:
        raise CliError(f"--seed {seed}: at least 0")
    deployment = msgspec.structs.replace(file.deployment, **changes)
    return msgspec.structs.replace(file, seed=seed, deployment=deployment)


def _name_of(root: Path) -> str:
    """A run name from the folder's: lower case, other characters as `-`."""
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in root.absolute().name.lower())
    return name.strip("-")[:63] or "run"


def _free_folder(name: str) -> Path:
    numbers = ["", *(f"-{number}" for number in range(2, 10_000))]
    return next(path for number in numbers if not (path := RUNS / f"{name}{number}").exists())


def _short(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
