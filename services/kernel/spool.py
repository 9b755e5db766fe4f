"""What tries have spent, on disk while they spend it: so it can be said of a try whose process was killed too.

One file a try in the replica's own folder: a line that says which try it is, then one for each answer of a model. It is
gone once the log says what the try came to. Nothing is synced: it outlives a process, and a machine only by luck.
"""

import fcntl
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from schemas.envelope import Meta
from schemas.messages import Message, WorkFailed
from schemas.parts import Usage, WorkError
from services.kernel.delivery import Answer

_LOG = logging.getLogger(__name__)
_SUFFIX = ".try"
CUT_OFF = WorkError(
    boundary="worker",
    kind="cut_off",
    detail="the process ended in the middle; what it was waiting for then is not counted",
)
"""Said afterwards of a try that counts as a kill, not as a failure."""


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A try, by the work message that it is of."""

    subject: str
    work_id: str
    try_: int


@dataclass
class Tally:
    """The tokens of one try, so far."""

    usage: Usage = field(default_factory=Usage)
    handle: int | None = None
    over: bool = False
    """The log says what the try came to."""

    def count(self, usage: Usage) -> None:
        self.usage = add_usage(self.usage, usage)
        if self.handle is not None:
            os.write(self.handle, msgspec.json.encode(usage) + b"\n")


@dataclass(frozen=True)
class Left:
    """What a try has left behind whose process is gone. `usage`: None where that cannot be read."""

    tried: Tried | None
    usage: Usage | None
    file: Path

    def remove(self) -> None:
        self.file.unlink(missing_ok=True)


_tally: ContextVar[Tally | None] = ContextVar("tally", default=None)


def count_tokens(*, prompt_tokens: int = 0, cached_tokens: int = 0, completion_tokens: int = 0) -> None:
    """Says what an answer of a model has cost; whoever asks models calls it once for each answer, used or not."""
    if (tally := _tally.get()) is not None:
        usage = Usage(prompt_tokens=prompt_tokens, cached_tokens=cached_tokens, completion_tokens=completion_tokens)
        tally.count(usage)


def is_cut_off(note: Message) -> bool:
    return isinstance(note, WorkFailed) and note.error.kind == CUT_OFF.kind


def cost_of(lost: Sequence[Answer]) -> tuple[Meta, Usage]:
    """What answers of one try have cost that came too late."""
    usage = Usage()
    for answer in lost:
        said = getattr(answer.message, "usage", None)
        usage = add_usage(usage, said) if isinstance(said, Usage) else usage
    cpu_s = [answer.meta.cpu_s for answer in lost if answer.meta.cpu_s is not None]
    sandbox_cpu_s = [answer.meta.sandbox_cpu_s for answer in lost if answer.meta.sandbox_cpu_s is not None]
    first = lost[0].meta
    meta = Meta(
        started_ns=first.started_ns,
        wall_s=first.wall_s,
        cpu_s=sum(cpu_s) if cpu_s else None,
        sandbox_cpu_s=sum(sandbox_cpu_s) if sandbox_cpu_s else None,
    )
    return meta, usage


def add_usage(one: Usage, other: Usage) -> Usage:
    return Usage(
        prompt_tokens=one.prompt_tokens + other.prompt_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        completion_tokens=one.completion_tokens + other.completion_tokens,
        turns=one.turns + other.turns,
    )


class Spool:
    """Without a folder it counts, and forgets with the process."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @contextmanager
    def trying(self, tried: Tried) -> Iterator[Tally]:
        """Counts what is spent inside the block, also by the tasks that it starts."""
        file = self._folder / f"{tried.work_id}.{tried.try_}{_SUFFIX}" if self._folder else None
        tally = Tally(handle=_open(file, tried) if file else None)
        token = _tally.set(tally)
        try:
            yield tally
        finally:
            _tally.reset(token)
            if file is not None and tally.handle is not None:
                if tally.over:
                    file.unlink(missing_ok=True)
                os.close(tally.handle)
                tally.handle = None

    def left(self) -> list[Left]:
        """What tries have left behind that no process is at any more."""
        files = sorted(self._folder.glob(f"*{_SUFFIX}")) if self._folder else []
        return [left for file in files if (left := _read(file)) is not None]


def _open(file: Path, tried: Tried) -> int | None:
    """None where the disk takes nothing: then a kill leaves no word, and all else goes on."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o640)
        # Held as long as this process lives: whoever gets the lock knows that it is gone.
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(handle, msgspec.json.encode(tried) + b"\n")
    except OSError as error:
        _LOG.warning("%s: %s", file, error)
        return None
    return handle


def _read(file: Path) -> Left | None:
    """None while a process is at it. A line that a kill has cut off counts as not written."""
    try:
        with file.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lines = opened.read().split(b"\n")[:-1]
    except (BlockingIOError, FileNotFoundError):
        return None
    usage = Usage()
    try:
        tried = msgspec.json.decode(lines[0], type=Tried) if lines else None
        for line in lines[1:]:
            usage = add_usage(usage, msgspec.json.decode(line, type=Usage))
    except msgspec.DecodeError:
        return Left(None, None, file)
    return Left(tried, usage, file)
