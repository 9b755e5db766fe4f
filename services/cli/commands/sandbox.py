"""`envwheel sandbox`: what sandboxes leave on a machine."""

import argparse

from services.cli.outcome import Exit, say, say_json


def reap(arguments: argparse.Namespace) -> int:
    from services.kernel.sandbox.docker.engine import Engine
    from services.kernel.sandbox.docker.reaper import reap as reap_engine

    engine = Engine(arguments.docker_host)
    try:
        reaped = reap_engine(engine)
    finally:
        engine.close()
    if arguments.json:
        say_json({"removed": reaped.removed, "alive": reaped.alive, "unknown": reaped.unknown})
        return Exit.ok
    for name in reaped.removed:
        say(f"removed  {name}")
    for name in reaped.unknown:
        say(f"left     {name}: its owner is on another machine or in another container, and cannot be seen from here")
    say(f"{len(reaped.removed)} removed, {len(reaped.alive)} of living processes left, {len(reaped.unknown)} not known")
    return Exit.ok
