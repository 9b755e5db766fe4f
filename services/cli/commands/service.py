"""`envwheel run`: one service against a NATS URL."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import msgspec

from schemas.subjects import check_run
from services.cli.outcome import CliError, Exit
from services.cli.profiles import profile_text
from services.kernel.options import ServiceOptions
from services.kernel.runfile import RunFile, read_runfile

PREFIX = "ENVWHEEL_"
BEAT_S = 5.0
ALLOWED_BESIDES = frozenset({"ENVWHEEL_DEBUG", "ENVWHEEL_HARBOR"})


async def run(arguments: argparse.Namespace) -> int:
    """Serves until SIGTERM or SIGINT. A fault that a restart does not mend ends it with code 1."""
    options = read_options(vars(arguments), os.environ)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    options.work.mkdir(parents=True, exist_ok=True)
    if arguments.service == "operator":
        return await _begin(arguments.config, options)
    heartbeat = asyncio.create_task(_beat(options.work / "alive"))
    try:
        await import_module(f"services.{arguments.service}.main").serve(options, stop)
    finally:
        heartbeat.cancel()
    return Exit.ok


async def _beat(file: Path) -> None:
    """A file that is fresh exactly as long as this event loop turns."""
    while True:
        _touch(file)
        await asyncio.sleep(BEAT_S)


def _touch(file: Path) -> None:
    file.touch()


def _read(config: Path | None, run: str) -> RunFile:
    if config is None or not config.is_file():
        raise CliError(f"operator needs --config: {config} is no file")
    file = read_runfile(config.read_text(), where=str(config), profile=profile_text)
    return msgspec.structs.replace(file, deployment=msgspec.structs.replace(file.deployment, name=run))


async def _begin(config: Path | None, options: ServiceOptions) -> int:
    """The beginning of a run on a server that others run; a run that began with the same science is left alone."""
    from schemas.codec import same_body
    from services.cli.genesis import begin
    from services.cli.turn import begun, check_same, find_base
    from services.kernel.artifacts import ArtifactStore
    from services.kernel.jetstream_log import connect

    file = _read(config, options.run)
    log = await connect(options.nats_url, options.run, same_body, create=True, name="envwheel-operator")
    try:
        if (before := await begun(log)) is None:
            base = find_base(options.base, options.work)
            await begin(log, ArtifactStore(options.artifacts).create(), file, base)
        else:
            check_same(before.science, file.science)
    finally:
        await log.close()
    return Exit.ok


def read_options(flags: Mapping[str, object], environ: Mapping[str, str]) -> ServiceOptions:
    """Flags over variables over defaults. An unknown ENVWHEEL_ variable, a missing or a bad value is a usage error."""
    names = {field.name: variable(field.name) for field in msgspec.structs.fields(ServiceOptions)}
    unknown = {name for name in environ if name.startswith(PREFIX)} - set(names.values()) - ALLOWED_BESIDES
    if unknown:
        raise CliError(f"unknown variable {min(unknown)}; known: {', '.join(names.values())}")
    given = {}
    for name, from_environ in names.items():
        value = flags.get(name)
        value = environ.get(from_environ) if value is None else value
        if value is not None and value != "":
            given[name] = value
    missing = [name for name in ("run", "nats_url", "artifacts", "work") if name not in given]
    if missing:
        flag, name = f"--{missing[0].replace('_', '-')}", names[missing[0]]
        raise CliError(f"{flag} is missing: give it, or set {name}")
    try:
        options = msgspec.convert(given, ServiceOptions, strict=False, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise CliError(f"deployment option: {error}") from error
    check_run(options.run)
    return _check_bounds(options)


def variable(field_name: str) -> str:
    return PREFIX + field_name.upper()


def _check_bounds(options: ServiceOptions) -> ServiceOptions:
    for name, low in (("slots", 1), ("in_flight_max", 1), ("ack_wait_s", 0.1), ("drain_s", 0)):
        value = getattr(options, name)
        if not low <= value < 1e9:
            raise CliError(f"--{name.replace('_', '-')} is {value}: at least {low} and finite")
    return options


def _path(kind: type, value: object) -> object:
    if kind is Path:
        return Path(str(value)).absolute()
    raise NotImplementedError
