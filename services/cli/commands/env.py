"""`envwheel env list` and `show`: the environments of a run, and what became of each."""

import argparse

import msgspec

from schemas.envelope import Event
from schemas.messages import (
    EnvCalibrated,
    EnvProposed,
    EnvRecalled,
    EnvRechecked,
    EnvValidated,
    PoolChanged,
    RolloutCompleted,
)
from schemas.outcomes import Verdict
from schemas.rot import first_failure
from services.cli.connect import open_run, pick
from services.cli.folder import find_run
from services.cli.outcome import CliError, Exit, say, say_json, say_table


class Env(msgspec.Struct, kw_only=True):
    """One environment of a run and what became of it."""

    env: str
    round: int
    slot: int
    revision: int
    maker: str
    parent: str | None
    verdict: str = "open"
    failed_gate: str | None = None
    calibration: str = ""
    mean: float | None = None
    state: str = "not in the pool"
    rechecks: tuple[str, ...] = ()
    """What the gates said later on, oldest first."""
    gates: dict[str, str] = msgspec.field(default_factory=dict)
    rollouts: dict[str, int] = msgspec.field(default_factory=dict)
    """Graded rollouts by purpose."""


async def list_envs(arguments: argparse.Namespace) -> int:
    async with open_run(find_run(arguments.run)) as run:
        found = environments(await run.events())
    if arguments.json:
        say_json(found)
        return Exit.ok
    rows = [
        (
            each.env[:12],
            f"{each.round}.{each.slot}.{each.revision}",
            each.maker,
            each.verdict + (f" ({each.failed_gate})" if each.failed_gate else ""),
            each.calibration + (f" {each.mean:.2f}" if each.mean is not None else ""),
            each.state,
        )
        for each in found
    ]
    say_table(("env", "round.slot.rev", "maker", "verdict", "calibration", "pool"), rows)
    return Exit.ok


async def show(arguments: argparse.Namespace) -> int:
    from services.kernel.archive import ArchiveError, unpack, write_tree

    async with open_run(find_run(arguments.run)) as run:
        known = {each.env: each for each in environments(await run.events())}
        digest = pick("environment", arguments.env, list(known))
        files = unpack(run.artifacts.get(digest))
    if arguments.to is not None:
        try:
            write_tree(files, arguments.to)
        except ArchiveError as error:
            raise CliError(f"--to: {error}") from error
    if arguments.json:
        say_json({"env": known[digest], "files": {name: len(entry.content) for name, entry in files.items()}})
        return Exit.ok
    found = known[digest]
    say(f"{found.env}")
    say(f"round {found.round}, slot {found.slot}, revision {found.revision}, by {found.maker}, parent {found.parent}")
    say(f"{found.verdict}, calibration {found.calibration or 'none'}, {found.state}")
    for said in found.rechecks:
        say(said)
    say("rollouts: " + (", ".join(f"{purpose} {count}" for purpose, count in found.rollouts.items()) or "none"))
    say_table(("gate", "result"), list(found.gates.items()))
    say_table(("file", "bytes"), [(name, str(len(entry.content))) for name, entry in files.items()])
    say()
    say(files["instruction.md"].content.decode(errors="replace").strip())
    if arguments.to is not None:
        say(f"written to {arguments.to}")
    return Exit.ok


def environments(events: list[Event]) -> list[Env]:
    """Every proposed environment in the order of its first proposal."""
    found: dict[str, Env] = {}
    for event in events:
        match event.body:
            case EnvProposed() as body if body.env not in found:
                found[body.env] = Env(
                    env=body.env, round=body.round, slot=body.slot, revision=body.revision,
                    maker=body.entry.name, parent=body.parent,
                )  # fmt: skip
            case EnvValidated(env=env) as body if env in found:
                found[env].verdict = body.verdict.value
                found[env].gates = {gate.gate: f"{gate.outcome.value} {gate.detail}".strip() for gate in body.gates}
                found[env].failed_gate = next((g.gate for g in body.gates if g.outcome.value == "failed"), None)
            case EnvRechecked(env=env) as body if env in found:
                why = f": {first_failure(body.gates)}" if body.verdict is Verdict.invalid else ""
                found[env].rechecks += (f"checked again in round {body.round}: {body.verdict.value}{why}",)
            case EnvRecalled(env=env) as body if env in found:
                why = first_failure(body.gates)
                found[env].rechecks += (f"taken back by the operator, on base {body.base_digest[:12]}: {why}",)
            case EnvCalibrated(env=env) as body if env in found:
                found[env].calibration, found[env].mean = body.outcome.value, body.mean
            case RolloutCompleted(env=env) as body if env in found and body.reward is not None:
                found[env].rollouts[body.purpose.value] = found[env].rollouts.get(body.purpose.value, 0) + 1
            case PoolChanged() as body:
                _take_pool(found, body)
            case _:
                pass
    return list(found.values())


def _take_pool(found: dict[str, Env], body: PoolChanged) -> None:
    for entry in body.added:
        if entry.env in found:
            found[entry.env].state = f"since version {body.pool_version}"
    for leaving in body.retired:
        if leaving.env in found:
            found[leaving.env].state = f"retired at version {body.pool_version}: {leaving.reason.value}"
