"""Replay levels `decisions`, `training` and `views`: equal on a true log, and the first difference named on others."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import duckdb
import msgspec
import pytest

from schemas.codec import encode, same_body
from schemas.envelope import Event
from schemas.messages import (
    MESSAGES,
    CheckpointPublished,
    EnvCalibrated,
    EnvRequested,
    Message,
    RolloutCompleted,
    RolloutRequested,
    RoundPlanned,
    RunFinished,
    RunStarted,
    UpdatePlanned,
)
from schemas.outcomes import CheckpointReason, Role
from schemas.subjects import subject_of
from services.kernel.artifacts import ArtifactStore
from services.kernel.log import Stored
from services.kernel.memory import MemoryLog
from services.observer.handler import Observer
from services.observer.views.decisions_level import decisions_level
from services.observer.views.levels import Difference, LevelReport
from services.observer.views.log_level import log_level
from services.observer.views.replay import LEVELS, Means, replay
from services.observer.views.source import ArtifactReader, Source, read_log
from services.observer.views.training_level import NotReproducible, training_level
from services.observer.views.views_level import views_level
from tests.support.histories import History, Shelf, append_all, whole_run
from tests.support.script import Script
from tests.support.wheel import POLICIES, RUN


def retrain(planned: Event, artifacts: ArtifactReader) -> tuple[str, str | None]:
    """The scripted trainer's step."""
    (published,) = Script().answer(planned.body)
    assert isinstance(published, CheckpointPublished)
    return published.checkpoint, published.state


def numbered(records: list[Stored]) -> Source:
    again = [replace(record, seq=seq) for seq, record in enumerate(records, 1)]
    return Source(RUN, again, whole_run().source().artifacts, len(again))


def first(history: History, kind: type[Message], place: int = 0) -> Event:
    return [event for event in history.events if isinstance(event.body, kind)][place]


def without(*events: Event) -> Source:
    gone = {event.id for event in events}
    return numbered([record for record in whole_run().records if record.id not in gone])


def with_body(event: Event, body: Message) -> Source:
    records = list(whole_run().records)
    records[event.seq - 1] = replace(
        records[event.seq - 1], subject=subject_of(RUN, body), data=encode(body, event.meta)
    )
    return numbered(records)


def difference(report: LevelReport) -> Difference:
    assert not report.equal
    assert report.first_difference is not None
    return report.first_difference


def test_every_decision_of_a_true_log_is_made_again() -> None:
    found = decisions_level(whole_run().source(), POLICIES)
    only_deciders = [e for e in whole_run().events if e.body.nature in ("decision", "request")]
    assert (found.equal, found.first_difference, found.notes) == (True, None, ())
    assert found.done == len(only_deciders) + sum(isinstance(e.body, EnvCalibrated) for e in whole_run().events)


@pytest.mark.parametrize("order_seed", range(2, 8))
def test_the_order_of_the_log_does_not_matter(order_seed: int) -> None:
    assert decisions_level(whole_run(order_seed).source(), POLICIES).equal


@pytest.mark.parametrize("kind", [RoundPlanned, EnvRequested, RolloutRequested, UpdatePlanned, EnvCalibrated])
def test_a_decision_that_was_taken_out_is_missing(kind: type[Message]) -> None:
    event = first(whole_run(), kind)
    found = difference(decisions_level(without(event), POLICIES))
    assert (found.what, found.id, found.message) == ("missing", event.id, event.body.name)


def test_a_decision_with_another_body_is_shown_with_both() -> None:
    event = first(whole_run(), EnvRequested, 3)
    assert isinstance(event.body, EnvRequested)
    forged = msgspec.structs.replace(event.body, pool_version=99)
    found = difference(decisions_level(with_body(event, forged), POLICIES))
    assert (found.what, found.seq, found.id) == ("changed", event.seq, event.id)
    assert '"pool_version":99' in found.detail
    assert f'"pool_version":{event.body.pool_version}' in found.detail


def test_a_changed_reward_shows_in_the_decision_that_it_leads_to() -> None:
    event = next(
        e for e in whole_run().events if isinstance(e.body, RolloutCompleted) and e.body.purpose == "calibrate"
    )
    assert isinstance(event.body, RolloutCompleted)
    forged = msgspec.structs.replace(event.body, reward=0.5)
    found = difference(decisions_level(with_body(event, forged), POLICIES))
    assert found.what in ("changed", "missing")
    assert found.message in ("env_calibrated", "rollout_requested")


def test_a_decision_that_nobody_made_is_extra() -> None:
    body = first(whole_run(), RolloutRequested).body
    assert isinstance(body, RolloutRequested)
    forged = msgspec.structs.replace(body, ordinal=7)
    extra = replace(
        whole_run().records[9], subject=subject_of(RUN, forged), data=encode(forged, whole_run().events[9].meta)
    )
    source = numbered([*whole_run().records[:200], extra, *whole_run().records[200:]])
    found = difference(decisions_level(source, POLICIES))
    assert (found.what, found.seq, found.id) == ("added", 201, forged.id)


def test_a_decision_before_its_cause_is_found() -> None:
    event = first(whole_run(), UpdatePlanned)
    records = list(whole_run().records)
    record = records.pop(event.seq - 1)
    records.insert(event.seq - 20, record)
    found = difference(decisions_level(numbered(records), POLICIES))
    assert (found.id, found.what) == (event.id, "changed")
    assert "before record" in found.detail


def test_what_was_not_said_any_more_at_the_end_is_no_difference() -> None:
    reached = first(whole_run(), RoundPlanned, 2).seq - 1
    source = numbered(list(whole_run().records[:reached]))
    found = decisions_level(source, POLICIES)
    assert found.equal
    assert "decided at the end and not said any more" in " ".join(found.notes)


def test_the_operators_end_of_a_run_is_not_the_trainers() -> None:
    event = first(whole_run(), RunFinished)
    body = RunFinished(round=event.body.round, why="enough")
    records = list(whole_run().records[:-1])
    meta = msgspec.structs.replace(event.meta, service="operator")
    records.append(replace(whole_run().records[-1], data=encode(body, meta), subject=subject_of(RUN, body)))
    assert decisions_level(numbered(records), POLICIES).equal


def test_a_mutated_policy_is_found_at_the_first_differing_id() -> None:
    true: ModuleType = POLICIES[Role.trainer]

    def decide(view: Any, event: Event) -> list[Message]:
        said = true.decide(view, event)
        return [
            msgspec.structs.replace(message, seed=message.seed + 1)
            if isinstance(message, UpdatePlanned) and message.update == 3
            else message
            for message in said
        ]

    mutated = SimpleNamespace(VERSION=true.VERSION, initial=true.initial, fold=true.fold, decide=decide)
    found = difference(decisions_level(whole_run().source(), {**POLICIES, Role.trainer: mutated}))
    third = first(whole_run(), UpdatePlanned, 2)
    assert (found.what, found.id, found.seq) == ("changed", third.id, third.seq)


def test_decisions_of_another_version_are_not_held_against_the_log() -> None:
    true: ModuleType = POLICIES[Role.trainer]
    newer = SimpleNamespace(VERSION=true.VERSION + 1, initial=true.initial, fold=true.fold, decide=true.decide)
    history = whole_run()
    began = history.events[0].body
    assert isinstance(began, RunStarted)
    pinned = msgspec.structs.replace(began, policies={"trainer": true.VERSION}, messages={"round_closed": 1})
    records = [replace(history.records[0], data=encode(pinned, history.events[0].meta)), *history.records[1:]]
    assert decisions_level(numbered(records), POLICIES).equal
    found = decisions_level(numbered(records), {**POLICIES, Role.trainer: newer})
    told = f"policy of trainer: the run has {true.VERSION}, this code {newer.VERSION}"
    assert (found.equal, found.not_reproducible) == (False, told)


def test_every_checkpoint_is_computed_again() -> None:
    assert training_level(whole_run().source(), retrain) == LevelReport(level="training", done=6, equal=True)


def test_another_checkpoint_is_named_with_both_digests() -> None:
    def other(planned: Event, artifacts: ArtifactReader) -> tuple[str, str | None]:
        checkpoint, state = retrain(planned, artifacts)
        return (checkpoint, "other state") if planned == third else (checkpoint, state)

    third = first(whole_run(), UpdatePlanned, 2)
    found = training_level(whole_run().source(), other)
    published = first(whole_run(), CheckpointPublished, 3)
    assert isinstance(published.body, CheckpointPublished)
    assert (found.done, difference(found).id) == (2, published.id)
    assert "other state" in difference(found).detail
    assert (published.body.state or "-") in difference(found).detail


def test_a_machine_that_cannot_give_the_bits_says_so_and_does_not_pass() -> None:
    def elsewhere(planned: Event, artifacts: ArtifactReader) -> tuple[str, str | None]:
        raise NotReproducible("recorded on another CPU kind")

    found = training_level(whole_run().source(), elsewhere)
    assert (found.equal, found.not_reproducible, found.first_difference) == (
        False, "recorded on another CPU kind", None,
    )  # fmt: skip


def test_checkpoints_that_infrastructure_failed_are_not_computed() -> None:
    event = first(whole_run(), CheckpointPublished, 3)
    assert isinstance(event.body, CheckpointPublished)
    source = with_body(event, msgspec.structs.replace(event.body, reason=CheckpointReason.infra_failed))
    found = training_level(source, retrain)
    assert (found.equal, found.done) == (True, 5)
    assert found.notes == ("1 updates were failed by infrastructure and not computed",)


@pytest.fixture
def observed(tmp_path: Path) -> tuple[Source, Path]:
    """A run that an observer watched to its end, and the observer's folder."""

    async def watch() -> Source:
        log, store = MemoryLog(RUN, same_body), ArtifactStore(tmp_path / "artifacts").create()
        await append_all(log, whole_run())
        (tmp_path / "work").mkdir()
        observer = Observer(RUN, log, store, tmp_path / "work", skills={})
        async for stored in log.read():
            await observer.take(stored)
        async for stored in log.read(420):
            await observer.take(stored)
        observer.close()
        contents = whole_run().artifacts | {digest: store.get(digest) for digest in store}
        return await read_log(RUN, log, Shelf(contents))

    return asyncio.run(watch()), tmp_path / "work"


def test_the_observers_tables_and_traces_are_made_again_equal(observed: tuple[Source, Path]) -> None:
    source, work = observed
    found = views_level(source, database=work / "snapshot.duckdb", traces=work / "traces")
    assert (found.equal, found.first_difference) == (True, None)
    assert found.done == len(MESSAGES) + 1 + 4, "every message, the costs, and four files of spans"
    assert found.notes == ("compared with snapshot.duckdb at record 421 of 421",)
    assert views_level(source, database=work / "views.duckdb").equal


def test_one_changed_cell_of_the_observers_tables_is_found(observed: tuple[Source, Path]) -> None:
    source, work = observed
    with duckdb.connect(str(work / "snapshot.duckdb")) as db:
        db.execute("UPDATE env_calibrated SET mean = mean + 1e-12 WHERE seq = (SELECT max(seq) FROM env_calibrated)")
    found = difference(views_level(source, database=work / "snapshot.duckdb"))
    assert (found.what, "env_calibrated" in found.detail) == ("table", True)


@pytest.mark.parametrize("place", [10, 701, 4116, 8863], ids=str)
def test_one_changed_byte_of_the_database_names_it(observed: tuple[Source, Path], place: int) -> None:
    source, work = observed
    path = work / "views.duckdb"
    data = path.read_bytes()
    path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    found = difference(views_level(source, database=path))
    assert (found.what, str(path) in found.detail) == ("unreadable", True)


def test_one_changed_byte_of_a_trace_is_found(observed: tuple[Source, Path]) -> None:
    source, work = observed
    path = work / "traces" / "round-1.json"
    data = path.read_bytes()
    path.write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    found = difference(views_level(source, traces=work / "traces"))
    assert (found.what, "round-1.json" in found.detail) == ("trace", True)


def test_tables_of_more_records_than_the_log_has_are_a_lost_end(observed: tuple[Source, Path]) -> None:
    source, work = observed
    shorter = Source(RUN, source.records[:400], source.artifacts, 400)
    found = difference(views_level(shorter, database=work / "snapshot.duckdb"))
    assert (found.what, found.seq) == ("missing", 401)


def test_an_unsealed_end_that_the_server_cut_off_is_named_by_the_tables(observed: tuple[Source, Path]) -> None:
    source, work = observed
    shorter = Source(RUN, source.records[:21], source.artifacts, 21)
    assert log_level(shorter).equal
    found = difference(log_level(shorter, database=work / "views.duckdb"))
    lost = source.event(source.records[21])
    assert (found.what, found.seq, found.message, found.id) == ("missing", 22, lost.body.name, lost.id)
    assert "421 records" in found.detail
    (work / "views.duckdb").write_bytes(b"damaged" * 1000)
    assert log_level(source, database=work / "views.duckdb").equal


def test_all_levels_are_equal_on_a_true_run(observed: tuple[Source, Path]) -> None:
    source, work = observed
    means = Means(database=work / "snapshot.duckdb", traces=work / "traces", policies=POLICIES, retrain=retrain)
    found = replay(source, LEVELS, means)
    assert [(report.level, report.equal) for report in found] == [(level, True) for level in LEVELS]


def test_a_level_without_its_means_does_not_pass() -> None:
    found = replay(whole_run().source(), ["decisions", "training"])
    assert [(report.equal, report.not_reproducible) for report in found] == [
        (False, "no means to run decisions again"), (False, "no means to run training again"),
    ]  # fmt: skip


def test_a_log_with_a_hole_or_an_unreadable_record_passes_no_level() -> None:
    source = whole_run().source()
    hole = Source(RUN, [r for r in source.records if r.seq != 9], source.artifacts, 420)
    unreadable = Source(
        RUN, [replace(r, data=b"?") if r.seq == 9 else r for r in source.records], source.artifacts, 420
    )
    for broken in (hole, unreadable):
        found = replay(broken, LEVELS, Means(policies=POLICIES, retrain=retrain))
        assert not any(report.equal for report in found)
    assert [report.first_difference.seq for report in replay(hole, LEVELS) if report.first_difference] == [9] * 4


def test_an_unknown_level_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="use some of log, views, decisions, training"):
        replay(whole_run().source(), ["everything"])
