"""Verdicts kept from one invocation to the next, so that an interrupted run over many tasks goes on where it was.

A verdict is kept under all that it rests on: the task's bytes, our code, rules, base, backend, held-out grams and pool.
What could not be checked is not kept: the next time may be better.
"""

import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from schemas.identity import digest_of
from services.cli.checks.verdict import TaskVerdict, Word

_LOG = logging.getLogger(__name__)


class KeptVerdicts:
    """`basis`: what all verdicts of this invocation rest on, but for the task itself."""

    def __init__(self, folder: Path, basis: Mapping[str, object], *, fresh: bool = False) -> None:
        self._folder = folder
        self._basis = msgspec.json.encode(dict(basis), order="deterministic")
        self._fresh = fresh

    def get(self, env: str) -> TaskVerdict | None:
        """What was said of this environment; None for nothing, or nothing that this code reads."""
        if self._fresh:
            return None
        path = self._path(env)
        try:
            found = msgspec.json.decode(path.read_bytes(), type=TaskVerdict)
            os.utime(path)
        except (OSError, msgspec.MsgspecError):
            return None  # what cannot be read is found out again
        return msgspec.structs.replace(found, kept=True)

    def keep(self, verdict: TaskVerdict) -> None:
        if verdict.env is None or verdict.verdict is Word.unchecked:
            return
        path = self._path(verdict.env)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, beside = tempfile.mkstemp(dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(msgspec.json.encode(verdict))
                Path(beside).replace(path)
            except BaseException:
                Path(beside).unlink(missing_ok=True)
                raise
        except OSError as error:
            _LOG.warning("the verdict on %s is not kept: %s", verdict.task, error)

    def _path(self, env: str) -> Path:
        key = digest_of(env.encode() + b"\0" + self._basis)
        return self._folder / key[:2] / f"{key}.json"
