"""`envwheel run`: one service against a NATS URL, or the operator that begins a run there."""

import argparse
import os
from importlib import import_module
from pathlib import Path

import msgspec

from services.cli.outcome import CliError, Exit
from services.cli.profiles import profile_text
from services.kernel.launch import read_options, serve_until_told
from services.kernel.options import ServiceOptions
from services.kernel.runfile import RunFile, read_runfile


async def run(arguments: argparse.Namespace) -> int:
    """Serves until SIGTERM or SIGINT. A fault that a restart does not mend ends it with code 1 or 2."""
    options = read_options(vars(arguments), os.environ)
    if arguments.service == "operator":
        return await _begin(_read(arguments.config, options.run), options)
    await serve_until_told(import_module(f"services.{arguments.service}.main").serve, options)
    return Exit.ok


def _read(config: Path | None, run: str) -> RunFile:
    if config is None or not config.is_file():
        raise CliError(f"operator needs --config: {config} is no file")
    file = read_runfile(config.read_text(), where=str(config), profile=profile_text)
    return msgspec.structs.replace(file, deployment=msgspec.structs.replace(file.deployment, name=run))


async def _begin(file: RunFile, options: ServiceOptions) -> int:
    """The beginning of a run on a server that others run; a run that began with the same science is left alone."""
    from schemas.codec import same_body
    from services.cli.genesis import begin
    from services.cli.turn import begun, check_same, find_base
    from services.kernel.artifacts import ArtifactStore
    from services.kernel.jetstream_log import connect

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
