"""`envwheel replay`: the levels by name, over a live log or an export."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas.outcomes import Role
from services.kernel.decider import Policy
from services.kernel.errors import Unreadable
from services.observer.views.decisions_level import decisions_level
from services.observer.views.levels import Difference, LevelReport
from services.observer.views.log_level import log_level
from services.observer.views.source import Source
from services.observer.views.training_level import Retrain, training_level
from services.observer.views.views_level import views_level

LEVELS = ("log", "views", "decisions", "training")


@dataclass(frozen=True)
class Means:
    """What the levels need beside the log. A level without its means is reported as not reproducible here."""

    root: str | None = None
    database: Path | None = None
    traces: Path | None = None
    policies: Mapping[Role, Policy[Any]] = field(default_factory=dict)
    retrain: Retrain | None = None


def replay(source: Source, levels: Sequence[str] = LEVELS, means: Means = Means()) -> list[LevelReport]:
    """One report a level, in the order asked for. Nothing is raised for what is wrong with the log."""
    return [_one(level, source, means) for level in levels]


def _one(level: str, source: Source, means: Means) -> LevelReport:
    if level != "log" and source.hole is not None:
        detail = "the log cannot be read here; run the level `log`, which names the record"
        difference = Difference(what="missing", seq=source.hole, detail=detail)
        return LevelReport(level=level, done=0, equal=False, first_difference=difference)
    try:
        match level:
            case "log":
                return log_level(source, root=means.root, database=means.database)
            case "views":
                return views_level(source, database=means.database, traces=means.traces)
            case "decisions" if means.policies:
                return decisions_level(source, means.policies)
            case "training" if means.retrain is not None:
                return training_level(source, means.retrain)
            case "decisions" | "training":
                return LevelReport(level=level, done=0, equal=False, not_reproducible=f"no means to run {level} again")
            case _:
                raise ValueError(f"no replay level {level!r}: use some of {', '.join(LEVELS)}")
    except Unreadable as error:
        difference = Difference(what="unreadable", detail=f"{error}; run the level `log`, which names the record")
        return LevelReport(level=level, done=0, equal=False, first_difference=difference)
