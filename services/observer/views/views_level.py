"""Replay level `views`: tables and spans made from zero, twice, and held against those of the observer."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from services.observer.views.levels import Difference, Differs, LevelReport
from services.observer.views.otlp import encode_spans
from services.observer.views.projector import Projector, ViewsDamaged, ViewsOwned, read_snapshot
from services.observer.views.source import Source
from services.observer.views.spans import RoundEvents, spans_of

LEVEL = "views"


def views_level(source: Source, *, database: Path | None = None, traces: Path | None = None) -> LevelReport:
    """`database`: the observer's snapshot, or its database when no observer runs. `traces`: its folder of span files.

    Raises: Unreadable where a record cannot be read: run the level `log` first.
    """
    notes: list[str] = []
    try:
        done = _tables(source, database, notes) + _traces(source, traces, notes)
    except Differs as differs:
        return LevelReport(level=LEVEL, done=0, equal=False, first_difference=differs.difference)
    return LevelReport(level=LEVEL, done=done, equal=True, notes=tuple(notes))


def table_hashes(source: Source, *, position: int | None = None, flush_every: int = 0) -> dict[str, str]:
    """Content hash of every table, made from zero in a folder of its own. `flush_every` 0: as full as buffers get."""
    folder = TemporaryDirectory(prefix="envwheel-views-")
    with folder as name, Projector(Path(name) / "views.duckdb", source.run) as projector:
        for record in source.records:
            if position is not None and record.seq > position:
                break
            projector.add(source.event(record), record.appended_at_ns)
            if flush_every and record.seq % flush_every == 0:
                projector.flush()
        return projector.content_hash()


def span_files(source: Source) -> dict[str, bytes]:
    """All trace files of the run, by name."""
    collected, files = RoundEvents(source.run), {}
    for record in source.records:
        if done := collected.add(source.event(record), record.appended_at_ns):
            files[done.file_name] = encode_spans(spans_of(done))
    return files


def _tables(source: Source, database: Path | None, notes: list[str]) -> int:
    position: int | None = None
    if database is None or not database.exists():
        notes.append("no database of an observer to compare with")
        live = table_hashes(source, flush_every=97)
    else:
        try:
            position, live = read_snapshot(database)
        except (ViewsOwned, ViewsDamaged) as error:
            raise Differs(Difference(what="unreadable", detail=str(error))) from error
        notes.append(f"compared with {database.name} at record {position} of {source.last_seq}")
    if position is not None and position > len(source.records):
        detail = f"{database} was made from {position} records, the log has {len(source.records)}"
        raise Differs(Difference(what="missing", seq=len(source.records) + 1, detail=detail))
    again = table_hashes(source, position=position)
    _compare("table", again, live)
    return len(again)


def _traces(source: Source, folder: Path | None, notes: list[str]) -> int:
    again = span_files(source)
    if folder is None or not folder.is_dir():
        notes.append("no trace files of an observer to compare with")
        _compare("trace", again, span_files(source))
        return len(again)
    live = {path.name: path.read_bytes() for path in sorted(folder.glob("*.json"))}
    waiting = again.keys() - live.keys()
    if waiting:
        notes.append(f"not written yet: {', '.join(sorted(waiting))}")
    _compare("trace", {name: data for name, data in again.items() if name in live}, live)
    return len(live)


def _compare(
    what: str, again: Mapping[str, str] | Mapping[str, bytes], live: Mapping[str, str] | Mapping[str, bytes]
) -> None:
    for name in sorted(again.keys() | live.keys()):
        if again.get(name) != live.get(name):
            raise Differs(Difference(what=what, detail=f"{name} made from the log again is another one"))
