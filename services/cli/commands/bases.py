"""`envwheel base`: the root file system that sandboxes start from."""

import argparse

from services.cli.outcome import Exit, say


def build(arguments: argparse.Namespace) -> int:
    from services.kernel.sandbox.base import build_base

    base = build_base(arguments.to, arguments.lock)
    say(f"{base.kind} {base.digest}")
    say(f'use it in run.toml: [deployment] base = "{arguments.to}"')
    return Exit.ok
