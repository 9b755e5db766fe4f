"""`envwheel env check`: the gates on any Harbor task, on many, or on one that its author works on. Needs no mesh."""

import argparse
import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import msgspec

from services.cli.checks.cache import CheckCache, open_cache
from services.cli.checks.checker import TROUBLE, Checker
from services.cli.checks.ending import until_sigterm
from services.cli.checks.kept import KeptVerdicts
from services.cli.checks.many import check_many
from services.cli.checks.shop import open_shop
from services.cli.checks.table import GateTable, TaskProgress, say_summary, say_verdict
from services.cli.checks.target import Target, find_targets
from services.cli.checks.terms import collect, read_terms
from services.cli.checks.verdict import Code, TaskVerdict, Word, exit_code
from services.cli.checks.watch import watch
from services.cli.outcome import CliError, Exit, say, say_json, say_table
from services.kernel.heldout.grams import read_grams

_SLUG = re.compile(r"[^A-Za-z0-9._-]+")


async def check(arguments: argparse.Namespace) -> int:
    """0 valid, 1 invalid, 2 could not check; of many tasks 1 where one is invalid."""
    targets = find_targets(arguments.folder)
    one = len(arguments.folder) == 1 and targets[0].path == arguments.folder[0]
    if arguments.watch and not one:
        raise CliError("--watch looks at one task: name its directory")
    return await until_sigterm(_check(arguments, targets, one=one))


async def _check(arguments: argparse.Namespace, targets: list[Target], *, one: bool) -> Code:
    async with _checker(arguments, targets) as (checker, kept):
        if arguments.watch:
            last = await _watch(arguments, checker, targets[0])
            return exit_code([last.verdict] if last else [Word.unchecked])
        if one:
            return exit_code([(await _one(arguments, checker, targets[0])).verdict])
        return await _many(arguments, checker, targets, kept)


@asynccontextmanager
async def _checker(arguments: argparse.Namespace, targets: list[Target]) -> AsyncIterator[tuple[Checker, KeptVerdicts]]:
    """All that checks need, opened once and closed whole."""
    terms = await asyncio.to_thread(read_terms, arguments, targets)
    cache = open_cache(arguments.cache)
    async with AsyncExitStack() as stack:
        try:
            shop = await stack.enter_async_context(open_shop(arguments, cache))
        except TROUBLE as error:
            raise CliError(f"could not check: {' '.join(str(error).split())}", Exit.usage) from error
        kept = KeptVerdicts(cache.verdicts, {**terms.basis, **shop.basis}, fresh=arguments.fresh)
        yield Checker(shop.workshop, terms, jobs=1 if arguments.jobs > 1 else None, hint=shop.hint), kept


async def _one(arguments: argparse.Namespace, checker: Checker, target: Target) -> TaskVerdict:
    with GateTable(quiet=arguments.json) as table:
        verdict = await checker.check(target, table.take)
    _write(arguments, verdict)
    if arguments.json:
        say_json(_shown(verdict))
    else:
        say_verdict(verdict)
    return verdict


async def _watch(arguments: argparse.Namespace, checker: Checker, target: Target) -> TaskVerdict | None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)

    async def again() -> TaskVerdict:
        verdict = await _one(arguments, checker, target)
        if not arguments.json:
            say("\nwatching for changes; Ctrl-C ends\n")
        return verdict

    return await watch(target.path, again, stop)


async def _many(arguments: argparse.Namespace, checker: Checker, targets: list[Target], kept: KeptVerdicts) -> Code:
    done: list[TaskVerdict] = []
    if arguments.out is not None:
        arguments.out.write_bytes(b"")
    try:
        with TaskProgress(len(targets), quiet=arguments.json) as progress:
            async with aclosing(check_many(checker, targets, kept, jobs=arguments.jobs)) as verdicts:
                async for verdict in verdicts:
                    done.append(verdict if arguments.json else verdict.without_evidence())
                    _write(arguments, verdict)
                    progress.take(verdict)
    finally:
        if arguments.json:
            say_json({"tasks": [_shown(each) for each in done], "not_checked": len(targets) - len(done)})
        else:
            say_summary(done, len(targets))
    return exit_code(each.verdict for each in done)


def _shown(verdict: TaskVerdict) -> dict[str, object]:
    """For --json: all but what was observed on the way."""
    whole: dict[str, object] = msgspec.to_builtins(verdict)
    gates = [{k: v for k, v in msgspec.to_builtins(gate).items() if k != "observed"} for gate in verdict.gates]
    return {**whole, "gates": gates}


def _write(arguments: argparse.Namespace, verdict: TaskVerdict) -> None:
    """A line of --out, and the evidence of every gate below --evidence."""
    if arguments.out is not None:
        with arguments.out.open("ab") as file:
            file.write(msgspec.json.encode(_shown(verdict)) + b"\n")
    if arguments.evidence is not None:
        folder = arguments.evidence / verdict.task
        folder.mkdir(parents=True, exist_ok=True)
        for gate in verdict.gates:
            data = msgspec.json.format(msgspec.json.encode(gate, order="deterministic"), indent=2)
            (folder / f"{_SLUG.sub('-', gate.gate)}.json").write_bytes(data + b"\n")


def grams(arguments: argparse.Namespace) -> int:
    """Digests of the word sequences of held-out instructions: what `--heldout` compares with, without the tasks."""
    data = collect(arguments.sets, arguments.words)
    arguments.output.write_bytes(data)
    say(f"{arguments.output}: {sum(map(len, read_grams(data).values()))} sequences")
    return Exit.ok


def cache_show(arguments: argparse.Namespace) -> int:
    use = open_cache(arguments.cache).use()
    if arguments.json:
        say_json(use)
        return Exit.ok
    rows = [("built layers", str(use.layers), f"{use.layer_bytes / 2**20:.1f} of {use.bytes_max / 2**20:.0f} MiB")]
    say_table(("what", "number", "size"), [*rows, ("verdicts", str(use.verdicts), "")])
    say(f"in {use.folder}; `envwheel env cache clear` removes it")
    return Exit.ok


def cache_clear(arguments: argparse.Namespace) -> int:
    cache: CheckCache = open_cache(arguments.cache)
    if not cache.clear():
        raise CliError(f"{cache.root} is in use by a check: try again when that has ended", Exit.infrastructure)
    say(f"{cache.root} is empty")
    return Exit.ok
