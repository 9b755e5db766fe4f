"""`envwheel import`: Harbor tasks that somebody brings become parents of a run's assignments."""

import argparse

from services.cli.connect import open_run
from services.cli.folder import find_run
from services.cli.outcome import CliError, Exit, say, say_json
from services.cli.seeds import read_archives, say_imports
from services.cli.trajectories import read_trajectories


async def import_tasks(arguments: argparse.Namespace) -> int:
    """They are said to the log; the run's validators check them, and its solver tries those that are valid."""
    archives = read_archives(arguments.folder)
    told = read_trajectories(arguments.trajectories) if arguments.trajectories else []
    if told and len(archives) != 1:
        raise CliError(f"--trajectories belong to one task; {arguments.folder} holds {len(archives)}")
    async with open_run(find_run(arguments.run)) as run:
        said = await say_imports(run, archives, arguments.licence, told)
    if arguments.json:
        say_json(said)
        return Exit.ok
    for body in said:
        say(f"{body.source}: {body.env[:12]} is on its way through the gates")
    say("the next round is planned when they are checked and tried; `envwheel log tail` shows their env_rechecked")
    return Exit.ok
