"""From words and variables to a running service: its options, its signals, its log lines, its heartbeat."""

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from schemas.subjects import BadSubjectError, check_run
from services.kernel.options import ServiceOptions

PREFIX = "ENVWHEEL_"
ALLOWED_BESIDES = frozenset({"ENVWHEEL_DEBUG", "ENVWHEEL_HARBOR"})
HEARTBEAT = "alive"
"""File in the service's folder that its event loop touches."""
BEAT_S = 5.0
_BOUNDS = (("slots", 1), ("in_flight_max", 1), ("ack_wait_s", 0.1), ("drain_s", 0))

Serve = Callable[[ServiceOptions, asyncio.Event], Awaitable[None]]


class OptionsError(ValueError):
    """An option is missing, unknown or out of bounds; says which, by flag and variable."""


async def serve_until_told(serve: Serve, options: ServiceOptions) -> None:
    """Until SIGTERM or SIGINT. Raises what `serve` raises."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    options.work.mkdir(parents=True, exist_ok=True)
    beating = asyncio.create_task(_beat(options.work / HEARTBEAT))
    try:
        await serve(options, stop)
    finally:
        beating.cancel()


def read_options(flags: Mapping[str, object], environ: Mapping[str, str]) -> ServiceOptions:
    """Flags over variables over defaults; an empty variable is none.

    Raises:
        OptionsError: an unknown ENVWHEEL_ variable, a missing or a bad value.
    """
    names = {field.name: variable(field.name) for field in msgspec.structs.fields(ServiceOptions)}
    unknown = {name for name in environ if name.startswith(PREFIX)} - set(names.values()) - ALLOWED_BESIDES
    if unknown:
        raise OptionsError(f"unknown variable {min(unknown)}; known: {', '.join(names.values())}")
    given = {name: environ[from_environ] for name, from_environ in names.items() if environ.get(from_environ)}
    given |= {name: str(flags[name]) for name in names if flags.get(name) is not None}
    for field in msgspec.structs.fields(ServiceOptions):
        if field.required and field.name not in given:
            raise OptionsError(f"{flag(field.name)} is missing: give it, or set {names[field.name]}")
    try:
        options = msgspec.convert(given, ServiceOptions, strict=False, dec_hook=_path)
        check_run(options.run)
    except (msgspec.ValidationError, BadSubjectError) as error:
        raise OptionsError(f"deployment option: {error}") from error
    for name, low in _BOUNDS:
        if not low <= getattr(options, name) < 1e9:
            raise OptionsError(f"{flag(name)} is {getattr(options, name)}: at least {low} and finite")
    return options


def variable(field_name: str) -> str:
    return PREFIX + field_name.upper()


def flag(field_name: str) -> str:
    return f"--{field_name.replace('_', '-')}"


async def _beat(file: Path) -> None:
    """The file is fresh exactly as long as this event loop turns."""
    while True:
        _touch(file)
        await asyncio.sleep(BEAT_S)


def _touch(file: Path) -> None:
    file.touch()


def _path(kind: type, value: object) -> object:
    if kind is Path:
        return Path(str(value)).absolute()
    raise NotImplementedError
