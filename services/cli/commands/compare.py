"""`envwheel compare`: which of two proposers makes better environments, as far as the runs can tell."""

import argparse

from services.cli.connect import open_run
from services.cli.folder import find_run
from services.cli.outcome import CliError, Exit, say, say_json, say_table
from services.observer.views.answers import Answered, answered, of_entry
from services.observer.views.compare import Comparison, Estimate, compare, sentences


async def compare_proposers(arguments: argparse.Namespace) -> int:
    """What the runs hold is taken together."""
    found: list[Answered] = []
    for name in arguments.runs or [None]:
        async with open_run(find_run(name)) as run:
            found += answered(await run.events())
    one, other = (of_entry(found, name) for name in (arguments.one, arguments.other))
    known = sorted({f"{entry.name}/{entry.arm}" for each in found for entry in each.entries})
    for name, side in ((arguments.one, one), (arguments.other, other)):
        if not side:
            raise CliError(f"{name!r} has finished no assignment here; those who have: {', '.join(known) or 'nobody'}")
    if {id(each) for each in one} & {id(each) for each in other}:
        raise CliError(f"{arguments.one!r} and {arguments.other!r} name the same work: say NAME/ARM for one arm of it")
    result = compare(arguments.one, arguments.other, one, other)
    if arguments.json:
        say_json(result)
        return Exit.ok
    _print(result, len(found) - len(one) - len(other))
    return Exit.ok


def _print(result: Comparison, left_out: int) -> None:
    how = f"over {result.pairs} assignments that both answered" if result.paired else "as independent samples"
    say(f"{result.one}: {result.answers[0]} assignments, {result.other}: {result.answers[1]}; compared {how}")
    if left_out:
        say(f"{left_out} assignments of others, or that several entries answered in turn, are left out")
    say()
    rows = [
        (
            metric.name,
            _shown(metric.one),
            _shown(metric.other),
            "-" if metric.difference is None else f"{metric.difference:+.3g}",
            "-" if metric.interval is None else _interval(metric.interval),
            metric.test if metric.p is None else f"{metric.test} p={metric.p:.2g}",
        )
        for metric in result.metrics
    ]
    say_table(("", result.one, result.other, "difference", "95% interval", "test"), rows)
    say()
    for line in sentences(result):
        say(line)
    say("each line is a test of its own: of twenty such lines one is wrong by chance")


def _shown(estimate: Estimate) -> str:
    if estimate.value is None:
        return "-"
    return f"{estimate.value:.3g} {_interval(estimate.interval)}" if estimate.interval else f"{estimate.value:.3g}"


def _interval(interval: tuple[float, float]) -> str:
    low, high = (round(end, 9) for end in interval)
    return f"[{low:.3g}, {high:.3g}]"
