"""The DuckDB projection: rows and position in one transaction, one owner, snapshots for everybody else.

The owner alone opens the database (DuckDB locks it anyway); readers open the snapshot, an atomically replaced copy that
states its position and age in the view `freshness`.
"""

import fcntl
import os
import time
from collections import defaultdict
from hashlib import sha256
from pathlib import Path
from types import TracebackType

import duckdb
import msgspec

from schemas.costs import CostBook
from schemas.envelope import Event
from services.kernel.errors import KernelError
from services.observer.views import costs
from services.observer.views.costs import cost_row
from services.observer.views.queries import statements
from services.observer.views.tables import Row, tables, tables_digest

FLUSH_ROWS = 1000
FLUSH_S = 0.25
_HASH_ROWS = 10_000
_CONFIG: dict[str, str | bool | int | float | list[str]] = {"threads": 1}
"""The observer shares the machine with the work it watches."""
_POS = """
    CREATE TABLE pos (one INTEGER PRIMARY KEY, run VARCHAR NOT NULL, tables_digest VARCHAR NOT NULL,
                      position BIGINT NOT NULL, last_appended_at_ns BIGINT NOT NULL, taken_at_ns BIGINT NOT NULL)"""


class ViewsOwned(KernelError):
    """Another process owns this database: stop that observer, or give this one another folder; read the snapshot."""

    boundary = "views"


class ViewsForeign(KernelError):
    """The database belongs to another run."""

    boundary = "views"


class ViewsDamaged(KernelError):
    """The database's own checksums say that it is not as it was written."""

    boundary = "views"


class Projector:
    """Folds events into the tables of one database. Not for several threads at once."""

    def __init__(self, path: Path, run: str) -> None:
        """Opens or makes the database; one whose tables have other columns is made anew, from position 0.

        Raises: ViewsOwned, ViewsForeign.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._run = run
        self._lock = _own(path.with_name(path.name + ".lock"))
        self._rows: dict[str, list[Row]] = defaultdict(list)
        self._waiting = 0
        self._book, self._heard = CostBook(), 0
        try:
            self._db = self._open()
        except BaseException:
            os.close(self._lock)
            raise
        self.position, self._appended_at_ns = _place(self._db)
        """Position of the last record in the tables or on the way to them."""

    def __enter__(self) -> "Projector":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, event: Event, appended_at_ns: int) -> None:
        """Takes the next record in, from the first on: costs rest on what was said before. One that is in the tables
        already is not written again. Flushes when enough wait.

        Raises: ProjectionError; ValueError where a position was left out.
        """
        if event.seq <= self._heard:
            return
        if event.seq != self._heard + 1:
            raise ValueError(f"record {event.seq} after record {self._heard}: a projection has no holes")
        cost = self._book.fold(event)
        self._heard = event.seq
        if event.seq <= self.position:
            return
        if cost is not None:
            self._rows[costs.TABLE].append(cost_row(cost))
        self._rows[event.body.name].append(tables()[event.body.name].row(event, appended_at_ns))
        self.position, self._appended_at_ns = event.seq, appended_at_ns
        self._waiting += 1
        if self._waiting >= FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Writes what waits, and the position, in one transaction."""
        if not self._waiting:
            return
        self._db.begin()
        try:
            for name, rows in self._rows.items():
                with self._db.appender(name, action="upsert") as appender:
                    appender.append_rows(rows)
            self._place(self._db, 0)
            self._db.commit()
        except BaseException:
            self._db.rollback()
            raise
        self._rows.clear()
        self._waiting = 0

    def snapshot(self, target: Path) -> None:
        """Replaces `target` by a copy of what is in the tables now; readers see the old or the new one, whole."""
        self.flush()
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        temporary.unlink(missing_ok=True)
        quoted = str(temporary).replace("'", "''")
        self._db.execute(f"ATTACH '{quoted}' AS snapshot_copy")
        try:
            name = self._db.execute("SELECT current_database()").fetchall()[0][0]
            self._db.execute(f'COPY FROM DATABASE "{name}" TO snapshot_copy')
            self._db.execute("UPDATE snapshot_copy.pos SET taken_at_ns = ?", [time.time_ns()])
        finally:
            self._db.execute("DETACH snapshot_copy")
        temporary.replace(target)

    def content_hash(self) -> dict[str, str]:
        """As `content_hash` of this database, with what waits written first."""
        self.flush()
        return content_hash(self._db)

    def close(self) -> None:
        """Writes what waits and gives the database back."""
        try:
            self.flush()
        finally:
            self._db.close()
            os.close(self._lock)

    def _open(self) -> duckdb.DuckDBPyConnection:
        db = duckdb.connect(str(self._path), config=_CONFIG)
        found = _tables_digest(db)
        if found is not None and found != _digest():
            db.close()
            for stale in (self._path, self._path.with_name(self._path.name + ".wal")):
                stale.unlink(missing_ok=True)
            db, found = duckdb.connect(str(self._path), config=_CONFIG), None
        if found is None:
            db.begin()
            db.execute(_POS)
            for table in tables().values():
                db.execute(table.ddl())
            db.execute(costs.DDL)
            self._appended_at_ns, self.position = 0, 0
            self._place(db, 0)
            db.commit()
        for statement in statements():
            db.execute(statement)
        run = db.execute("SELECT run FROM pos").fetchall()[0][0]
        if run != self._run:
            db.close()
            raise ViewsForeign(f"{self._path} holds run {run!r}, not {self._run!r}: use a folder of its own")
        return db

    def _place(self, db: duckdb.DuckDBPyConnection, taken_at_ns: int) -> None:
        place = [self._run, _digest(), self.position, self._appended_at_ns, taken_at_ns]
        db.execute("INSERT OR REPLACE INTO pos VALUES (1, ?, ?, ?, ?, ?)", place)


def content_hash(db: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """sha256 of every table: its rows in key order as canonical JSON, one a line."""
    return {name: _table_hash(db, name) for name in (*tables(), costs.TABLE)}


def read_snapshot(path: Path) -> tuple[int, dict[str, str]]:
    """Position and content hash of a database that nobody owns now. Raises: ViewsOwned, ViewsDamaged."""
    try:
        with duckdb.connect(str(path), read_only=True, config=_CONFIG) as db:
            return _place(db)[0], content_hash(db)
    except duckdb.IOException as error:
        raise ViewsOwned(f"{path} cannot be read now: {error}") from error
    except duckdb.Error as error:
        raise ViewsDamaged(
            f"{path} cannot be read: {error}; take it away, and the observer makes it again from the log"
        ) from error


def record_behind(path: Path, seq: int) -> tuple[int, str, str] | None:
    """Position of a database that was made from more than `seq` records, with message and id of the next one; None for
    any other, and for one that cannot be read.
    """
    try:
        with duckdb.connect(str(path), read_only=True, config=_CONFIG) as db:
            position = _place(db)[0]
            for name in tables() if position > seq else ():
                for (id_,) in db.execute(f'SELECT id FROM "{name}" WHERE seq = ?', [seq + 1]).fetchall():  # noqa: S608 - a name of our own
                    return position, name, str(id_)
    except duckdb.Error:
        return None
    return None


def _table_hash(db: duckdb.DuckDBPyConnection, name: str) -> str:
    digest = sha256()
    result = db.execute(f'SELECT * FROM "{name}" ORDER BY seq')  # noqa: S608 - a name of our own
    while rows := result.fetchmany(_HASH_ROWS):
        for row in rows:
            digest.update(msgspec.json.encode(row) + b"\n")
    return digest.hexdigest()


def _place(db: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    position, appended_at_ns = db.execute("SELECT position, last_appended_at_ns FROM pos").fetchall()[0]
    return int(position), int(appended_at_ns)


def _digest() -> str:
    return sha256(f"{tables_digest()}\n{costs.DDL}".encode()).hexdigest()


def _tables_digest(db: duckdb.DuckDBPyConnection) -> str | None:
    found = db.execute("SELECT 1 FROM information_schema.tables WHERE table_name = 'pos'").fetchall()
    return str(db.execute("SELECT tables_digest FROM pos").fetchall()[0][0]) if found else None


def _own(path: Path) -> int:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise ViewsOwned(
            f"{path.with_suffix('')} is owned by process {owner}: stop that observer or use another folder; "
            "to read, open the snapshot beside it"
        ) from None
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    return lock
