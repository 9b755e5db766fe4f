"""`envwheel cost`: what a run has spent, by whatever one asks for."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from schemas.envelope import Event
from services.cli.connect import open_run
from services.cli.folder import find_run
from services.cli.outcome import Exit, say, say_json, say_table
from services.kernel.delivery import read_event
from services.kernel.log import Stored
from services.observer.views.costs import CostLine, CostTable

HEAD = ("messages", "prompt", "cached", "completion", "USD", "CPU s", "sandbox s", "wall s")
PER_HEAD = ("valid", "tokens per valid", "USD per valid", "CPU s per valid")


async def cost(arguments: argparse.Namespace) -> int:
    """From the log itself, so that it is complete whatever the observer has read."""
    by = list(dict.fromkeys(arguments.by))
    async with open_run(find_run(arguments.run)) as run:
        records = await run.records()
    table = costs_of(run.name, [(stored, read_event(run.name, stored)) for stored in records], by)
    if arguments.json:
        say_json(table)
        return Exit.ok
    for line in lines_of(table, by):
        say(line)
    if by:
        say()
        say_table((*by, *HEAD, *PER_HEAD), [_row(line, by) for line in table.lines])
    return Exit.ok


def costs_of(name: str, records: Sequence[tuple[Stored, Event]], by: Sequence[str]) -> CostTable:
    """Raises ProjectionError."""
    import duckdb

    from services.observer.views.costs import cost_table
    from services.observer.views.projector import Projector

    with TemporaryDirectory(prefix="envwheel-cost-") as folder:
        path = Path(folder) / "views.duckdb"
        with Projector(path, name) as projector:
            for stored, event in records:
                projector.add(event, stored.appended_at_ns)
        with duckdb.connect(str(path), read_only=True) as db:
            return cost_table(db, by)


def lines_of(table: CostTable, by: Sequence[str]) -> list[str]:
    """The total, what an environment cost, and what nobody knows."""
    total = table.total
    tokens = total.prompt_tokens + total.completion_tokens
    lines = [
        f"to record {table.position}: {tokens} tokens ({total.prompt_tokens} prompt, {total.cached_tokens} of it "
        f"cached; {total.completion_tokens} completion), {total.usd:.6g} USD, {total.cpu_s:.2f} CPU s, "
        f"{total.sandbox_cpu_s:.2f} of it in sandboxes"
    ]
    for what, count in (("valid", total.valid), ("admitted", total.admitted)):
        share = f"{_each(total, count)} ({count})" if count else "there is none"
        lines.append(f"per {what} environment: {share}")
    if total.tokens_unknown or total.cpu_unknown:
        lines.append(
            f"not known, and in no sum: tokens of {total.tokens_unknown} tries, CPU s of {total.cpu_unknown} messages"
        )
    if total.in_flight:
        lines.append(f"in flight, not in the sums yet: {total.in_flight} tries")
    return lines


def _each(line: CostLine, count: int) -> str:
    tokens, usd, cpu_s = _per(line, count)
    return f"{tokens} tokens, {usd} USD, {cpu_s} CPU s"


def _per(line: CostLine, count: int) -> tuple[str, str, str]:
    """What making environments cost, over so many of them."""
    if not count:
        return "", "", ""
    return f"{line.making_tokens / count:.0f}", f"{line.making_usd / count:.6g}", f"{line.making_cpu_s / count:.2f}"


def _row(line: CostLine, by: Sequence[str]) -> tuple[str, ...]:
    labels = ("-" if line.by[name] is None else str(line.by[name])[:16] for name in by)
    figures = (
        str(line.messages),
        str(line.prompt_tokens),
        str(line.cached_tokens),
        str(line.completion_tokens),
        f"{line.usd:.6g}",
        f"{line.cpu_s:.2f}",
        f"{line.sandbox_cpu_s:.2f}",
        f"{line.wall_s:.2f}",
    )
    per = _per(line, line.valid) if line.making_tokens or line.making_cpu_s else ("", "", "")
    return (*labels, *figures, str(line.valid), *per)
