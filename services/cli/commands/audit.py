"""`envwheel replay` and `envwheel report`."""

import argparse
from pathlib import Path

from services.cli.connect import open_run
from services.cli.folder import find_run
from services.cli.outcome import CliError, Exit, say, say_json
from services.cli.parser import LEVELS
from services.cli.replaying import means_of, views_of
from services.observer.views.levels import LevelReport
from services.observer.views.replay import replay as replay_levels
from services.observer.views.source import Source, read_log


async def replay(arguments: argparse.Namespace) -> int:
    """0 where all levels are equal; a level that cannot hold here does not count as equal."""
    exported = _export_at(arguments.run)
    if exported is not None:
        reports = _replayed(exported, None, arguments)
    else:
        async with open_run(find_run(arguments.run)) as run:
            source = await read_log(run.name, run.log, run.artifacts)
            reports = _replayed(source, views_of(run.folder), arguments, live=run.live)
    if arguments.json:
        say_json(reports)
    else:
        for line in verdict_lines(reports):
            say(line)
    return Exit.ok if all(each.equal for each in reports) else Exit.difference


async def report(arguments: argparse.Namespace) -> int:
    from services.kernel.skills.catalogue import SKILLS
    from services.observer.views.markdown import to_markdown
    from services.observer.views.report import progress_of, to_json
    from services.observer.views.report import report as report_of

    async with open_run(find_run(arguments.run)) as run:
        data = report_of(progress_of(await run.events()), SKILLS)
    say((to_json(data).decode() if arguments.json else to_markdown(data)).rstrip("\n"))
    return Exit.ok


def verdict_lines(reports: list[LevelReport]) -> list[str]:
    lines = []
    for each in reports:
        if each.equal:
            lines.append(f"{each.level:<10} equal ({each.done} compared)")
        elif each.not_reproducible is not None:
            lines.append(f"{each.level:<10} not reproducible here: {each.not_reproducible}")
        else:
            lines.append(f"{each.level:<10} DIFFERS: {each.first_difference}")
        lines += [f"{'':<10} {note}" for note in each.notes]
    return lines


def _replayed(
    source: Source, views: Path | None, arguments: argparse.Namespace, *, live: bool = False
) -> list[LevelReport]:
    levels = list(dict.fromkeys(arguments.level)) or list(LEVELS)
    return replay_levels(source, levels, means_of(source, views, live=live, root=arguments.root))


def _export_at(name: str | None) -> Source | None:
    """A folder or .tar that `log export` made, where the name is one."""
    if name is None:
        return None
    path = Path(name)
    if path.is_file() and path.suffix != ".tar":
        raise CliError(f"{path} is neither a run folder nor an export")
    if path.is_file() or (path / "export.json").is_file():
        from services.observer.views.export import read_export

        return read_export(path)
    return None
