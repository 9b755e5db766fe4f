"""DuckDB tables: made from the messages, exactly once, the same whenever they are made again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest

from schemas.codec import decode, encode
from schemas.envelope import Meta
from schemas.messages import MESSAGES, RolloutCompleted, RolloutRequested, WorkFailed, WorkParked
from schemas.outcomes import Purpose, Role
from schemas.parts import Usage, WorkError
from services.observer.policy import Progress, wilson
from services.observer.views.projector import Projector, ViewsForeign, ViewsOwned, content_hash, read_snapshot
from services.observer.views.report import progress_of
from services.observer.views.scores import held_out_scores
from services.observer.views.tables import COMMON, ProjectionError, tables
from tests.support.histories import History, whole_run
from tests.support.wheel import RUN


def project(projector: Projector, history: History, *, to: int | None = None) -> None:
    for record, event in zip(history.records[:to], history.events, strict=False):
        projector.add(event, record.appended_at_ns)


@contextmanager
def projected(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A reader's connection to the snapshot of a whole run."""
    with Projector(folder / "views.duckdb", RUN) as projector:
        project(projector, whole_run())
        projector.snapshot(folder / "snapshot.duckdb")
        with duckdb.connect(str(folder / "snapshot.duckdb"), read_only=True) as db:
            yield db


def rows(db: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return db.execute(query).fetchall()


def test_every_field_of_every_message_has_a_column() -> None:
    for message in MESSAGES:
        fields = {field.encode_name for field in msgspec.structs.fields(message)}
        columns = {column.name.removeprefix("body_") for column in tables()[message.name].columns}
        assert columns == fields
        assert not {column.name for column in tables()[message.name].columns} & {name for name, _ in COMMON}


def test_a_field_named_like_a_column_of_every_table_keeps_its_value() -> None:
    parked = WorkParked(role=Role.solver, work_id="w", try_=3, subject="test.env_requested.0.-.w", reason="why")
    table = tables()["work_parked"]
    event = decode(encode(parked, Meta()), subject="test.work_parked.0.solver.x", seq=1)
    named = dict(zip([name for name, _ in COMMON] + [c.name for c in table.columns], table.row(event, 5), strict=True))
    assert named["subject"] == "test.work_parked.0.solver.x"
    assert named["body_subject"] == "test.env_requested.0.-.w"
    assert (named["try"], named["role"], named["appended_at_ns"]) == (3, "solver", 5)


def test_nested_values_are_json_and_absent_ones_null() -> None:
    error = WorkError(boundary="log", kind="log_unknown", detail='it\'s "gone"')
    failed = WorkFailed(role=Role.trainer, work_id="w", try_=1, error=error)
    table = tables()["work_failed"]
    row = table.row(decode(encode(failed, Meta())), 0)
    assert msgspec.json.decode(str(row[-2]), type=WorkError) == error
    assert row[-1] is None
    spent = msgspec.structs.replace(failed, usage=Usage(prompt_tokens=3))
    assert table.row(decode(encode(spent, Meta())), 0)[-1] == '{"prompt_tokens":3}'
    request = RolloutRequested(env="e", checkpoint_version=0, checkpoint="c", purpose=Purpose.train, attempts=2, seed=1)
    names = [name for name, _ in COMMON] + [column.name for column in tables()["rollout_requested"].columns]
    cells = dict(zip(names, tables()["rollout_requested"].row(decode(encode(request, Meta())), 0), strict=True))
    assert cells["slot"] is None
    assert cells["purpose"] == "train"


def test_a_number_that_does_not_fit_stops_the_projection_and_names_the_record() -> None:
    request = RolloutRequested(
        env="e", checkpoint_version=0, checkpoint="c", purpose=Purpose.train, attempts=2, seed=2**63
    )
    event = decode(encode(request, Meta()), subject="test.x", seq=4)
    with pytest.raises(ProjectionError, match="record 4"):
        tables()["rollout_requested"].row(event, 0)


def test_the_tables_hold_what_the_log_says(tmp_path: Path) -> None:
    with projected(tmp_path) as db:
        for name in tables():
            there = db.table(name).order("seq").project("seq, id, body_digest, cause_id, at_ns").fetchall()
            assert there == [
                (event.seq, event.id, event.body_digest, event.meta.cause, event.meta.at_ns)
                for event in whole_run().events
                if event.body.name == name
            ]
        rollouts = rows(db, "SELECT seq, reward, outcome, tests FROM rollout_completed ORDER BY seq")
        assert rollouts == [
            (e.seq, e.body.reward, e.body.outcome.value, msgspec.json.encode(e.body.tests, order="sorted").decode())
            for e in whole_run().events
            if isinstance(e.body, RolloutCompleted)
        ]


def test_the_snapshot_says_its_position_and_age(tmp_path: Path) -> None:
    with projected(tmp_path) as db:
        run, position, appended_at_ns, taken_at_ns, age_s = rows(db, "SELECT * FROM freshness")[0]
    last = whole_run().records[-1]
    assert (run, position, appended_at_ns) == (RUN, last.seq, last.appended_at_ns)
    assert 0 <= time.time_ns() - taken_at_ns < 60e9
    assert 0 <= age_s < 60


def test_the_queries_give_the_numbers_of_the_report(tmp_path: Path) -> None:
    view: Progress = progress_of(whole_run().events)
    with projected(tmp_path) as db:
        found = rows(db, "SELECT entry, sum(valid), sum(answers) FROM valid_rate GROUP BY entry")
        maker = view.makers["procedural"]
        assert found == [("procedural", maker.valid, maker.answered)]
        for valid, answers, low, high in rows(db, "SELECT valid, answers, low, high FROM valid_rate"):
            assert (low, high) == pytest.approx(wilson(valid / answers, answers), abs=1e-12)
        query = (
            "SELECT set_name, checkpoint_version, envs, rollouts, solved, mean_reward FROM heldout_scores ORDER BY ALL"
        )
        assert rows(db, query) == [
            (s.set_name, s.checkpoint_version, s.envs, s.rollouts, s.solved, s.mean_reward)
            for s in held_out_scores(view)
        ]
        query = "SELECT round, slots, waves, proposed, valid, admitted, updates, digest FROM rounds ORDER BY round"
        assert rows(db, query) == [
            (n, r.planned, r.waves, r.proposed, r.valid, r.admitted, r.updates, r.digest)
            for n, r in view.rounds.items()
        ]
        pool = rows(db, "SELECT pool_version, members, added, retired FROM pool_history ORDER BY pool_version")
        assert pool == view.pool
        query = "SELECT stage, sum(prompt_tokens + completion_tokens), sum(cpu_s) FROM costs GROUP BY stage"
        assert {stage: (tokens, cpu_s) for stage, tokens, cpu_s in rows(db, query)} == {
            stage.value: (sums.tokens, pytest.approx(sums.cpu_s)) for stage, sums in view.spent.items()
        }
        failed = rows(db, "SELECT failed_gate, count(*) FROM envs WHERE verdict = 'invalid' GROUP BY ALL")
        assert failed == [("oracle passes", 2)]


def test_tables_made_from_zero_are_equal_however_the_rows_were_grouped(tmp_path: Path) -> None:
    history = whole_run()
    with Projector(tmp_path / "one.duckdb", RUN) as one, Projector(tmp_path / "two.duckdb", RUN) as two:
        project(one, history)
        for record, event in zip(history.records, history.events, strict=True):
            two.add(event, record.appended_at_ns)
            if event.seq % 7 == 0:
                two.flush()
        assert one.content_hash() == two.content_hash()


def test_the_content_hash_sees_one_changed_cell(tmp_path: Path) -> None:
    with Projector(tmp_path / "views.duckdb", RUN) as projector:
        project(projector, whole_run())
        before = projector.content_hash()
    with duckdb.connect(str(tmp_path / "views.duckdb")) as db:
        db.execute(
            "UPDATE rollout_completed SET reward = 1 - reward WHERE seq = (SELECT min(seq) FROM rollout_completed)"
        )
        changed = content_hash(db)
    assert {name for name in before if before[name] != changed[name]} == {"rollout_completed"}


def test_a_new_start_goes_on_and_takes_repeated_records_for_nothing(tmp_path: Path) -> None:
    with Projector(tmp_path / "views.duckdb", RUN) as projector:
        project(projector, whole_run(), to=200)
    with Projector(tmp_path / "views.duckdb", RUN) as projector:
        assert projector.position == 200
        project(projector, whole_run())
        found = projector.content_hash()
    with Projector(tmp_path / "fresh.duckdb", RUN) as projector:
        project(projector, whole_run())
        assert found == projector.content_hash()


def test_a_left_out_record_is_refused(tmp_path: Path) -> None:
    history = whole_run()
    with Projector(tmp_path / "views.duckdb", RUN) as projector:
        project(projector, history, to=3)
        with pytest.raises(ValueError, match="no holes"):
            projector.add(history.events[4], 0)


def test_a_second_owner_is_told_who_the_first_one_is(tmp_path: Path) -> None:
    with (
        Projector(tmp_path / "views.duckdb", RUN),
        pytest.raises(ViewsOwned, match=f"owned by process {os.getpid()}: stop that observer"),
    ):
        Projector(tmp_path / "views.duckdb", RUN)
    Projector(tmp_path / "views.duckdb", RUN).close()


def test_a_database_of_another_run_is_refused(tmp_path: Path) -> None:
    Projector(tmp_path / "views.duckdb", RUN).close()
    with pytest.raises(ViewsForeign, match="holds run 'test', not 'other'"):
        Projector(tmp_path / "views.duckdb", "other")


def test_a_database_with_other_columns_is_made_anew(tmp_path: Path) -> None:
    with Projector(tmp_path / "views.duckdb", RUN) as projector:
        project(projector, whole_run(), to=50)
    with duckdb.connect(str(tmp_path / "views.duckdb")) as db:
        db.execute("UPDATE pos SET tables_digest = 'of an older version'")
    with Projector(tmp_path / "views.duckdb", RUN) as projector:
        assert projector.position == 0


def test_readers_of_an_old_snapshot_are_not_disturbed_by_a_new_one(tmp_path: Path) -> None:
    with Projector(tmp_path / "views.duckdb", RUN) as projector:
        project(projector, whole_run(), to=100)
        projector.snapshot(tmp_path / "snapshot.duckdb")
        with duckdb.connect(str(tmp_path / "snapshot.duckdb"), read_only=True) as reader:
            project(projector, whole_run())
            projector.snapshot(tmp_path / "snapshot.duckdb")
            assert rows(reader, "SELECT position FROM freshness") == [(100,)]
    assert read_snapshot(tmp_path / "snapshot.duckdb")[0] == 420
    assert [path.name for path in tmp_path.iterdir() if "snapshot" in path.name] == ["snapshot.duckdb"]


_KILLED = """
import sys
from pathlib import Path
from services.observer.views.projector import Projector
from tests.support.histories import whole_run
history = whole_run()
with Projector(Path(sys.argv[1]), "test") as projector:
    for record, event in zip(history.records, history.events, strict=True):
        projector.add(event, record.appended_at_ns)
        if event.seq % 3 == 0:
            projector.flush()
            print(event.seq, flush=True)
"""


def test_rows_and_position_are_never_torn_apart_by_a_kill(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", _KILLED, str(tmp_path / "v.duckdb")], stdout=subprocess.PIPE)
    assert child.stdout is not None
    said = 0
    for line in child.stdout:
        said = int(line)
        if said >= 60:
            break
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    with Projector(tmp_path / "v.duckdb", RUN) as projector:
        position = projector.position
    assert said <= position < 420
    with duckdb.connect(str(tmp_path / "v.duckdb")) as db:
        seqs = sorted(seq for name in tables() for (seq,) in db.table(name).project("seq").fetchall())
    assert seqs == list(range(1, position + 1))
