"""One command from its words to its exit code: errors become one line each."""

import asyncio
import importlib
import inspect
import os
import traceback

from services.cli.outcome import CliError, Exit, warn
from services.cli.parser import build_parser

_FAULTS = (
    "Diverged",
    "Unreadable",
    "LogGap",
    "SealBroken",
    "ArtifactCorrupt",
    "ArtifactMissing",
    "ProjectionError",
    "ViewsForeign",
    "LogTooLarge",
)
"""Something is not as it must be, and trying again does not mend it."""
_MISUSES = (
    "OtherVersions",
    "RunFileError",
    "OptionsError",
    "BadSubjectError",
    "WorkshopError",
    "LogDenied",
    "LogRefused",
    "ExportError",
    "ModelError",
)
"""Something else must be said, granted or installed first."""


def run(argv: list[str] | None = None) -> int:
    """Parse and carry out. `ENVWHEEL_DEBUG=1` shows the traceback of an error."""
    arguments = build_parser().parse_args(argv)
    module_name, function_name = arguments.does.split(":")
    debug = os.environ.get("ENVWHEEL_DEBUG") == "1"
    try:
        function = getattr(importlib.import_module(f"services.cli.commands.{module_name}"), function_name)
        outcome = function(arguments)
        return int(asyncio.run(outcome) if inspect.iscoroutine(outcome) else outcome)
    except KeyboardInterrupt:
        warn("envwheel: interrupted")
        return 130
    except Exception as error:  # noqa: BLE001 - the last boundary: a person reads this
        first = _first(error)
        if isinstance(first, BrokenPipeError):
            # A pipe that ends early (`| head`) is the reader's business, not an error of ours.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return Exit.ok
        if debug:
            traceback.print_exc()
        code, line = _explain(first)
        warn(f"envwheel: {line}")
        return code


def _first(error: BaseException) -> BaseException:
    """What went wrong first, out of the groups that tasks put it in."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


def _explain(error: BaseException) -> tuple[Exit, str]:
    if isinstance(error, CliError):
        return error.code, str(error)
    kind = type(error).__name__
    text = " ".join(str(error).split()) or kind
    if _is_of(error, *_FAULTS):
        return Exit.difference, f"{kind}: {text}"
    if _is_of(error, *_MISUSES):
        return Exit.usage, text
    if isinstance(error, ModuleNotFoundError):
        return Exit.infrastructure, f"{text}; install it: pip install -c constraints.txt -e '.[cpu]'"
    if isinstance(error, OSError) or _is_of(error, "KernelError", "SandboxError"):
        return Exit.infrastructure, text
    return Exit.infrastructure, f"{kind}: {text} (ENVWHEEL_DEBUG=1 shows where)"


def _is_of(error: BaseException, *names: str) -> bool:
    """By name, so that no command imports the rooms of another to explain itself."""
    return any(kind.__name__ in names for kind in type(error).__mro__)
