"""Progress while a run goes on: a table on a terminal, else a line at each change, at most one in two seconds."""

import sys
import time
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console
from rich.live import Live as RichLive
from rich.table import Table

from schemas.envelope import Event
from schemas.outcomes import Purpose
from services.observer.policy import Progress, fold, initial
from services.observer.views.scores import held_out_scores

LINE_EVERY_S = 2.0
DRAW_EVERY_S = 0.5
MAKING_SHARE, UPDATES_SHARE = 0.35, 0.35
"""Shares of a round's time that go into making and calibrating environments, and into updates; the rest evaluates."""
COLUMNS = ("round", "planned", "valid", "admitted", "rollouts", "update", "near", "far", "left")


@dataclass
class Live:
    """Feed it every event of the run, old ones too; it shows only from `with` on."""

    quiet: bool = False
    progress: Progress = field(default_factory=initial)
    _shown_at: float = 0.0
    _last_line: str = ""
    _began: float = field(default_factory=time.monotonic)
    _share_at_start: float | None = None
    _display: RichLive | None = None

    def __enter__(self) -> "Live":
        if not self.quiet and sys.stdout.isatty():
            self._display = RichLive(console=Console(), auto_refresh=False, transient=False)
            self._display.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.show(now=True)
        if self._display is not None:
            self._display.stop()
            self._display = None

    def take(self, event: Event) -> None:
        self.progress = fold(self.progress, event)

    def show(self, *, now: bool = False) -> None:
        """Draws what there is to say, if it is time."""
        every_s = LINE_EVERY_S if self._display is None else DRAW_EVERY_S
        if self.quiet or (not now and time.monotonic() - self._shown_at < every_s):
            return
        self._shown_at = time.monotonic()
        rows = table_rows(self.progress, self._left())
        if self._display is not None:
            self._display.update(_table(rows), refresh=True)
            return
        line = ", ".join(f"{name} {cell}" for name, cell in zip(COLUMNS, rows[-1], strict=True) if cell) if rows else ""
        # The estimate alone is no news.
        news = line.rpartition(", left")[0] or line
        if line and news != self._last_line:
            self._last_line = news
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def _left(self) -> str:
        if self.progress.finished is not None:
            return ""
        share = share_done(self.progress)
        if self._share_at_start is None:
            self._share_at_start = share
        done = share - self._share_at_start
        if done < 0.02:
            return ""
        left_s = (time.monotonic() - self._began) / done * (1 - share)
        return f"about {left_s / 60:.0f} min" if left_s >= 90 else f"about {left_s:.0f} s"


def share_done(progress: Progress) -> float:
    """How much of the run is behind us, [0, 1]: rounds, and in the newest one slots answered and updates made."""
    if progress.run is None:
        return 0.0
    done = 0.0
    for number, counts in progress.rounds.items():
        if counts.digest is not None:
            done += 1.0
            continue
        updates = counts.updates / counts.updates_total if counts.updates_total else 0.0
        making = 1.0 if updates else min(1.0, counts.admitted / counts.target) if counts.target else 0.0
        asked = _evaluations(progress, number)
        evaluated = counts.rollouts[Purpose.evaluate] / asked if asked else updates
        rest = 1 - MAKING_SHARE - UPDATES_SHARE
        done += MAKING_SHARE * making + UPDATES_SHARE * min(1.0, updates) + rest * min(1.0, evaluated)
    return min(1.0, done / progress.run.science.rounds)


def _evaluations(progress: Progress, number: int) -> int:
    """Held-out rollouts of a round: one evaluation of each set, and in round 0 that of the cold start too."""
    if progress.run is None:
        return 0
    rules = progress.run.science.evaluation
    attempts = {"near": rules.near_attempts, "far": rules.far_attempts}
    each = sum(len(sets.envs) * attempts.get(sets.name, 0) for sets in progress.run.heldout)
    due = (number + 1) % rules.every_rounds == 0 or number + 1 == progress.run.science.rounds
    return each * (due + (number == 0))


def table_rows(progress: Progress, left: str = "") -> list[tuple[str, ...]]:
    """One row a round, cells as text, in the order of COLUMNS."""
    scores = {(score.set_name, score.checkpoint_version): score.mean_reward for score in held_out_scores(progress)}
    rows: list[tuple[str, ...]] = []
    for number, counts in sorted(progress.rounds.items()):
        if not counts.planned and not counts.evaluated:
            continue
        newest = max(counts.evaluated, default=-1)
        near, far = (scores.get((name, newest)) for name in ("near", "far"))
        tried = counts.valid + counts.invalid + sum(counts.abandoned.values())
        update = f"{counts.updates}/{counts.updates_total}" if counts.updates_total else ""
        rows.append(
            (
                str(number),
                str(counts.planned),
                f"{counts.valid}/{tried}",
                f"{counts.admitted}/{counts.target}",
                str(sum(counts.rollouts.values())),
                update,
                "" if near is None else f"{near:.3f}",
                "" if far is None else f"{far:.3f}",
                left if number == max(progress.rounds) else "",
            )
        )
    return rows


def _table(rows: list[tuple[str, ...]]) -> Table:
    table = Table(*COLUMNS, title="the wheel", title_justify="left")
    for row in rows:
        table.add_row(*row)
    return table
