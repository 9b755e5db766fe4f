"""`envwheel env recheck`: the gates again on environments of a run, after time or a change of base."""

import argparse
import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from schemas.envelope import Event
from schemas.messages import EnvRecalled, EnvRechecked, EnvValidated, PoolChanged, RunFinished, RunStarted
from schemas.outcomes import GateOutcome, Verdict
from schemas.parts import GateResult
from services.cli.checks.cache import open_cache
from services.cli.checks.checker import TROUBLE, Checker
from services.cli.checks.ending import until_sigterm
from services.cli.checks.shop import open_shop
from services.cli.checks.table import TaskProgress
from services.cli.checks.target import Target
from services.cli.checks.terms import Terms
from services.cli.checks.verdict import Code, TaskVerdict, Word, exit_code
from services.cli.connect import open_run, pick, say_next, started
from services.cli.folder import RunFolder, find_run
from services.cli.outcome import CliError, Exit, say, say_json, say_table
from services.kernel.artifacts import ArtifactStore
from services.kernel.heldout.grams import read_grams
from services.kernel.runfile import Deployment


@dataclass
class History:
    """What the log says of environments that were valid once."""

    run: RunStarted
    gates: dict[str, tuple[GateResult, ...]] = field(default_factory=dict)
    """Results of the newest verdict, by environment."""
    members: tuple[str, ...] = ()
    recalls: int = 0
    finished: bool = False


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    gate: str
    before: str
    now: str
    detail: str = ""


class Rechecked(msgspec.Struct, frozen=True, kw_only=True):
    env: str
    verdict: Word
    reason: str
    member: bool
    differences: tuple[Difference, ...]
    retired: str | None = None
    """Id of the message that takes it back."""


async def recheck(arguments: argparse.Namespace) -> int:
    """0: all hold, 1: one does not, 2: one could not be checked."""
    return await until_sigterm(_recheck(arguments))


async def _recheck(arguments: argparse.Namespace) -> Code:
    folder = find_run(arguments.run)
    async with open_run(folder) as run:
        history = read_history(await run.events())
    if arguments.retire and history.finished:
        raise CliError("this run has finished: nothing is retired in it any more")
    chosen = _chosen(history, arguments)
    _as_the_run(arguments, folder.file().deployment)
    try:
        base, verdicts = await _check(arguments, history, folder, chosen)
    except TROUBLE as error:
        raise CliError(f"could not check: {' '.join(str(error).split())}", Exit.usage) from error
    found = [
        Rechecked(
            env=env,
            verdict=verdict.verdict,
            reason=verdict.line(),
            member=env in history.members,
            differences=differences(history.gates[env], verdict),
        )
        for env, verdict in verdicts.items()
    ]
    if arguments.retire:
        found = await _retire(folder, history, base, found, verdicts)
    _say(arguments, history, base, found)
    return exit_code(each.verdict for each in found)


def read_history(events: list[Event]) -> History:
    history = History(started(events))
    for event in events:
        match event.body:
            case EnvValidated() | EnvRechecked() as body if body.verdict is Verdict.valid or body.env in history.gates:
                if body.verdict is not Verdict.infra_failed:
                    history.gates[body.env] = body.gates
            case PoolChanged() as body:
                history.members = body.members
            case EnvRecalled() as body:
                history.recalls = max(history.recalls, body.ordinal + 1)
            case RunFinished():
                history.finished = True
            case _:
                pass
    return history


def differences(before: tuple[GateResult, ...], verdict: TaskVerdict) -> tuple[Difference, ...]:
    """Gates that ended otherwise than before. One that is new or was not reached now counts only where it fails."""
    was = {gate.gate: gate.outcome for gate in before}
    found = []
    for gate in verdict.gates:
        then = was.get(gate.gate)
        news = gate.outcome is GateOutcome.failed or (then is not None and gate.outcome is not GateOutcome.skipped)
        if news and then is not gate.outcome:
            said = then.value if then else "not run"
            found.append(Difference(gate=gate.gate, before=said, now=gate.outcome.value, detail=gate.detail))
    return tuple(found)


def _chosen(history: History, arguments: argparse.Namespace) -> list[str]:
    known = list(history.gates)
    if arguments.envs:
        return [pick("environment", each, known) for each in arguments.envs]
    chosen = known if arguments.all else sorted(history.members)
    if not chosen:
        raise CliError("this run has no environment in its pool yet: --all takes all that were valid once")
    return chosen


def _as_the_run(arguments: argparse.Namespace, deployment: Deployment) -> None:
    """What was not said about sandboxes is as the run has it."""
    if arguments.base is None:
        arguments.base = "host" if deployment.base == "auto" else deployment.base
    if arguments.backend is None:
        arguments.backend = deployment.sandbox
    if not arguments.docker_host:
        arguments.docker_host = deployment.docker_host
    if arguments.docker_runtime is None:
        arguments.docker_runtime = deployment.docker_runtime or None


async def _check(
    arguments: argparse.Namespace, history: History, folder: RunFolder, chosen: list[str]
) -> tuple[str, dict[str, TaskVerdict]]:
    """Digest of the base, and the verdicts."""
    store = ArtifactStore(folder.artifacts)
    grams = read_grams(store.get(history.run.heldout_grams)) if history.run.heldout_grams else {}
    terms = Terms(history.run.science, grams, pool={}, basis={}, all_gates=True)
    verdicts: dict[str, TaskVerdict] = {}
    async with open_shop(arguments, open_cache(arguments.cache)) as shop:
        checker = Checker(shop.workshop, terms)
        with TaskProgress(len(chosen), quiet=arguments.json) as progress:
            for env in chosen:
                archive = await asyncio.to_thread(store.get, env)
                verdicts[env] = await checker.check_archive(Target(env[:12], Path(store.path(env))), archive)
                progress.take(verdicts[env])
        return shop.workshop.base.digest, verdicts


async def _retire(
    folder: RunFolder, history: History, base: str, found: list[Rechecked], verdicts: dict[str, TaskVerdict]
) -> list[Rechecked]:
    """Takes back, on the log, what no longer holds; evidence first."""
    store = ArtifactStore(folder.artifacts)
    async with open_run(folder) as run:
        done = []
        for each in found:
            if each.verdict is not Word.invalid:
                done.append(each)
                continue
            gates = tuple(await asyncio.to_thread(_results, store, verdicts[each.env]))
            said = await say_next(
                run,
                history.recalls,
                lambda ordinal, env=each.env, gates=gates: EnvRecalled(  # type: ignore[misc] # bound in this turn
                    ordinal=ordinal, env=env, base_digest=base, gates=gates
                ),
            )
            done.append(msgspec.structs.replace(each, retired=said.id))
        return done


def _results(store: ArtifactStore, verdict: TaskVerdict) -> list[GateResult]:
    evidence = store.put_many([msgspec.json.encode(gate.content, order="deterministic") for gate in verdict.gates])
    return [
        GateResult(
            gate=gate.gate,
            outcome=gate.outcome,
            detail=gate.detail,
            evidence=digest if gate.content else None,
        )
        for gate, digest in zip(verdict.gates, evidence, strict=True)
    ]


def _say(arguments: argparse.Namespace, history: History, base: str, found: list[Rechecked]) -> None:
    if arguments.json:
        say_json({"base": base, "run_base": history.run.base_digest, "envs": found})
        return
    which = "the run's own" if base == history.run.base_digest else f"the run has {history.run.base_digest[:12]}"
    say(f"\nbase {base[:12]} ({which})")
    rows = [
        (each.env[:12], difference.gate, difference.before, difference.now, difference.detail)
        for each in found
        for difference in each.differences
    ]
    say_table(("env", "gate", "before", "now", "why"), rows)
    rotten = [each for each in found if each.verdict is Word.invalid]
    unchecked = sum(each.verdict is Word.unchecked for each in found)
    say(f"\n{len(found) - len(rotten) - unchecked} hold, {len(rotten)} do not, {unchecked} could not be checked")
    if rotten and arguments.retire:
        say("what does not hold leaves the pool at its next version")
    elif rotten and not history.finished:
        say("`envwheel env recheck --retire` takes these out of the run's pool")
