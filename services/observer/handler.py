"""What the observer does with each record: project, seal, trace, count; and with each tick: flush, snapshot."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

from schemas.messages import RunFinished
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import read_event
from services.kernel.log import EventLog, Stored
from services.observer.policy import fold, initial
from services.observer.views.markdown import to_markdown
from services.observer.views.otlp import write_spans
from services.observer.views.projector import Projector
from services.observer.views.report import report, to_json
from services.observer.views.scores import SkillKind
from services.observer.views.sealing import Sealer
from services.observer.views.spans import RoundEvents, spans_of

SNAPSHOT_S = 10.0
"""Readers see a state that is at most so much older than the tables, while something changes."""
DATABASE = "views.duckdb"
SNAPSHOT = "snapshot.duckdb"
TRACES = "traces"
REPORT_MD, REPORT_JSON = "report.md", "report.json"


class Observer:
    """Feed it every record from the first. What it writes lies in `work` and can be made from the log again.

    The report is there from the run's end or the observer's on; one of an earlier life is taken away at the start.
    """

    def __init__(
        self,
        run: str,
        log: EventLog,
        artifacts: ArtifactStore,
        work: Path,
        *,
        skills: Mapping[str, SkillKind],
        snapshot_s: float = SNAPSHOT_S,
    ) -> None:
        """Raises: ViewsOwned, ViewsForeign."""
        self._run = run
        self._work = work
        self._skills = skills
        self._snapshot_s = snapshot_s
        self._projector = Projector(work / DATABASE, run)
        for stale in (REPORT_MD, REPORT_JSON):
            (work / stale).unlink(missing_ok=True)
        self._sealer = Sealer(run, log, artifacts)
        self._rounds = RoundEvents(run)
        self._snapshot_position = -1
        self._snapshot_at_s = 0.0
        self.progress = initial()
        self.position = 0

    async def take(self, stored: Stored) -> None:
        """Raises: Unreadable, ProjectionError, SealBroken, LogError: the observer cannot go on without a hole."""
        event = read_event(self._run, stored)
        self.progress = fold(self.progress, event)
        self._projector.add(event, stored.appended_at_ns)
        if (done := self._rounds.add(event, stored.appended_at_ns)) is not None:
            await asyncio.to_thread(write_spans, self._work / TRACES / done.file_name, spans_of(done))
        await self._sealer.add(stored, event)
        self.position = stored.seq
        if isinstance(event.body, RunFinished):
            self.write_report()
            self._snapshot()

    def tick(self) -> None:
        """Writes what waits; now and then a snapshot, if there is anything new."""
        self._projector.flush()
        if time.monotonic() - self._snapshot_at_s >= self._snapshot_s and self._snapshot_position != self.position:
            self._snapshot()

    def write_report(self) -> None:
        """report.md, then report.json, each replaced at once."""
        data = report(self.progress, self._skills)
        for name, text in ((REPORT_MD, to_markdown(data).encode()), (REPORT_JSON, to_json(data))):
            temporary = self._work / f".{name}"
            temporary.write_bytes(text)
            temporary.replace(self._work / name)

    async def seal_rest(self) -> None:
        """Seals what came behind the run's end."""
        await self._sealer.finish()

    def close(self) -> None:
        try:
            self.write_report()
            self._snapshot()
        finally:
            self._projector.close()

    def _snapshot(self) -> None:
        self._projector.snapshot(self._work / SNAPSHOT)
        self._snapshot_position, self._snapshot_at_s = self.position, time.monotonic()
