"""Harbor tasks that an operator brings into a run: read from disk, stored, and said to the log."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from schemas.envelope import Event
from schemas.messages import EnvImported, EnvProposed, Message, RunFinished
from services.cli.checks.target import find_targets
from services.cli.connect import OpenRun, say_next, started
from services.cli.outcome import CliError
from services.kernel.archive import ArchiveError

UNKNOWN_LICENCE = "unknown"
TASKS_MAX = 64
"""At once: all of them go through all gates before the next round is planned."""


def read_archives(folder: Path) -> dict[str, bytes]:
    """The tasks that a path names or holds, by name. Raises CliError."""
    targets = find_targets([folder])
    if len(targets) > TASKS_MAX:
        raise CliError(f"{folder} holds {len(targets)} tasks; import at most {TASKS_MAX} at once")
    try:
        return {target.name: target.archive() for target in targets}
    except (ArchiveError, OSError) as error:
        raise CliError(f"{folder}: {error}") from error


async def say_imports(
    run: OpenRun, archives: Mapping[str, bytes], licence: str, trajectories: Sequence[bytes] = ()
) -> list[EnvImported]:
    """Artifacts first, then a message for each task that the run does not know. Raises CliError."""
    events = await run.events()
    started(events)
    if any(isinstance(event.body, RunFinished) for event in events):
        raise CliError("this run has finished: nothing is planned in it any more")
    digests = run.artifacts.put_many([*archives.values(), *trajectories])
    envs, attempts = digests[: len(archives)], tuple(digests[len(archives) :])
    known = _known(events)
    if not set(envs) - known:
        raise CliError("all of these are in the run already")
    free = 1 + max((event.body.ordinal for event in events if isinstance(event.body, EnvImported)), default=-1)
    said: list[EnvImported] = []
    for name, env in zip(archives, envs, strict=True):
        if env in known:
            continue
        known.add(env)

        def make(ordinal: int, name: str = name, env: str = env) -> Message:
            plain = EnvImported(ordinal=ordinal, env=env, source=name, licence=licence)
            return replace(plain, trajectories=attempts) if attempts else plain

        body = await say_next(run, free + len(said), make)
        if isinstance(body, EnvImported):
            said.append(body)
    return said


def _known(events: Sequence[Event]) -> set[str]:
    """A recheck's answer is named by environment and ordinal: an environment comes into a run once, in one way."""
    return {event.body.env for event in events if isinstance(event.body, EnvImported | EnvProposed)}
