"""`envwheel base`: the root file system that sandboxes start from."""

import argparse

from services.cli.outcome import CliError, Exit, say


def build(arguments: argparse.Namespace) -> int:
    from services.kernel.sandbox.base import build_base

    if arguments.lock is not None and not arguments.lock.is_file():
        raise CliError(f"--lock {arguments.lock} is no file: give the packages.json of a base")
    base = build_base(arguments.to, arguments.lock)
    say(f"{base.kind} {base.digest}")
    say(f'use it in run.toml: [deployment] base = "{arguments.to}"')
    return Exit.ok
