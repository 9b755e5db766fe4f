"""The observer against a real nats-server: it follows, seals, stops, goes on, and what was tampered with is named."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest

from schemas.codec import encode, same_body
from schemas.envelope import Event, Meta
from schemas.messages import RosterChanged, SegmentSealed, WorkStarted
from schemas.outcomes import Role
from schemas.subjects import subject_of
from services.kernel.artifacts import ArtifactStore
from services.kernel.jetstream_log import JetStreamLog, connect
from services.kernel.log import Entry, append_in_parts
from services.kernel.nats_server import NatsServer
from services.kernel.options import ServiceOptions
from services.kernel.skills.catalogue import SKILLS
from services.observer.main import serve
from services.observer.views.export import read_export, write_export
from services.observer.views.projector import ViewsOwned
from services.observer.views.replay import LEVELS, Means, replay
from services.observer.views.report import Report, progress_of, report, to_json
from services.observer.views.source import Source, read_log
from services.observer.views.training_level import Retrain
from tests.support.histories import append_all, whole_run
from tests.support.nats import nats_server
from tests.support.script import Script
from tests.support.wheel import POLICIES, RUN


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with nats_server() as started:
        yield started


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:
    """Shared by the tests of this file: content has no owner."""
    store = ArtifactStore(tmp_path_factory.mktemp("artifacts")).create()
    store.put_many(list(whole_run().artifacts.values()))
    return store


@pytest.fixture
def options(server: NatsServer, store: ArtifactStore, tmp_path: Path) -> ServiceOptions:
    return ServiceOptions(run=RUN, nats_url=server.url, artifacts=store.root, work=tmp_path / "work")


@asynccontextmanager
async def open_log(server: NatsServer, *, create: bool = False) -> AsyncIterator[JetStreamLog]:
    log = await connect(server.url, RUN, same_body, create=create)
    try:
        yield log
    finally:
        await log.close()


@asynccontextmanager
async def observer(options: ServiceOptions) -> AsyncIterator[None]:
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(options, stop))
    try:
        yield
        stop.set()
        async with asyncio.timeout(10):
            await serving
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def until(log: JetStreamLog, last_seq: int) -> None:
    for _ in range(1000):
        if await log.last_seq() >= last_seq:
            return
        await asyncio.sleep(0.02)
    raise TimeoutError(f"the log did not reach {last_seq}")


async def there(path: Path) -> None:
    for _ in range(1000):
        if path.exists():  # noqa: ASYNC240 - nothing else runs in a test
            return
        await asyncio.sleep(0.02)
    raise TimeoutError(f"{path} did not come")


def retrain() -> Retrain:
    def again(planned: Event, artifacts: Any) -> tuple[str, str | None]:
        (published,) = Script().answer(planned.body)
        return published.checkpoint, published.state  # type: ignore[attr-defined]

    return again


def means(options: ServiceOptions) -> Means:
    return Means(
        database=options.work / "snapshot.duckdb", traces=options.work / "traces", policies=POLICIES, retrain=retrain()
    )


async def test_a_run_is_projected_sealed_traced_and_reported_and_all_levels_are_equal(
    server: NatsServer, options: ServiceOptions, store: ArtifactStore
) -> None:
    async with open_log(server, create=True) as log:
        async with observer(options):
            await append_all(log, whole_run())
            await until(log, 421)
        source = await read_log(RUN, log, store)
        found = replay(source, LEVELS, means(options))
        assert [(report.level, report.equal, report.first_difference) for report in found] == [
            (level, True, None) for level in LEVELS
        ]
        assert found[1].notes == ("compared with snapshot.duckdb at record 421 of 421",)
        data = (options.work / "report.json").read_bytes()
        assert data == to_json(report(progress_of(source.events()), SKILLS))
        assert msgspec.json.decode(data, type=Report).finished == "all rounds are done"
        assert (options.work / "report.md").read_text().startswith("# Run report")
        write_export(source, options.work / "run.tar")
    assert replay(read_export(options.work / "run.tar"), ["log"])[0].equal


async def test_an_observer_that_is_stopped_again_and_again_ends_with_the_same(
    server: NatsServer, options: ServiceOptions, store: ArtifactStore
) -> None:
    records = whole_run().records
    async with open_log(server, create=True) as log:
        for start in range(0, 420, 84):
            async with observer(options):
                part = [Entry(record.subject, record.id, record.data) for record in records[start : start + 84]]
                await append_in_parts(log, part)
        source = await read_log(RUN, log, store)
    assert [report.equal for report in replay(source, LEVELS, means(options))] == [True] * 4
    (sealed,) = [event.body for event in source.events() if isinstance(event.body, SegmentSealed)]
    assert (sealed.first, sealed.last) == (1, 420)


async def test_what_comes_after_the_end_is_sealed_when_the_observer_stops(
    server: NatsServer, options: ServiceOptions, store: ArtifactStore
) -> None:
    late = WorkStarted(role=Role.solver, work_id="ab" * 32, try_=1)
    async with open_log(server, create=True) as log:
        async with observer(options):
            await append_all(log, whole_run())
            await until(log, 421)
            await log.append([Entry(subject_of(RUN, late), late.id, encode(late, Meta()))])
        source = await read_log(RUN, log, store)
    sealed = [event.body.last for event in source.events() if isinstance(event.body, SegmentSealed)]
    assert sealed == [420, 422]
    assert replay(source, ["log"])[0].equal


async def test_readers_see_the_live_state_with_its_position(
    server: NatsServer, options: ServiceOptions, store: ArtifactStore
) -> None:
    async with open_log(server, create=True) as log, observer(options):
        await append_all(log, whole_run())
        await until(log, 421)
        await there(options.work / "snapshot.duckdb")
        with duckdb.connect(str(options.work / "snapshot.duckdb"), read_only=True) as db:
            position = db.execute("SELECT position FROM freshness").fetchall()[0][0]
            count = db.execute("SELECT count(*) FROM rollout_completed").fetchall()[0][0]
        assert position >= 1
        assert count <= 240


async def test_a_second_observer_of_a_folder_is_refused(
    server: NatsServer, options: ServiceOptions, store: ArtifactStore
) -> None:
    async with open_log(server, create=True), observer(options):
        await there(options.work / "views.duckdb.lock")
        with pytest.raises(ViewsOwned, match="stop that observer"):
            await serve(options, asyncio.Event())


async def test_an_unreadable_record_stops_the_observer(
    server: NatsServer, options: ServiceOptions, store: ArtifactStore
) -> None:
    message = RosterChanged(ordinal=0, role=Role.proposer, entries=())
    data = encode(message, Meta()).replace(b"roster_changed.v1", b"roster_changed.v9")
    async with open_log(server, create=True) as log:
        await log.append([Entry(subject_of(RUN, message), message.id, data)])
        with pytest.raises(Exception, match="version 9 is newer than this code"):
            async with asyncio.timeout(20):
                await serve(options, asyncio.Event())


async def _tampered(server: NatsServer, store: ArtifactStore, seq: int) -> Source:
    """One byte of a record in the server's own file is changed while the server is down."""
    async with open_log(server) as log:
        record = [stored async for stored in log.read()][seq - 1]
    server.stop()
    changed = 0
    for path in server._store.rglob("*.blk"):
        data = path.read_bytes()
        place = data.find(record.data)
        if place >= 0:
            place += len(record.data) // 2
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            changed += 1
    assert changed == 1
    server.start()
    async with open_log(server) as log:
        return await read_log(RUN, log, store)


@pytest.mark.parametrize("seq", [1, 133, 420])
async def test_one_changed_byte_in_the_servers_file_names_the_record(
    server: NatsServer, options: ServiceOptions, store: ArtifactStore, seq: int
) -> None:
    async with open_log(server, create=True) as log, observer(options):
        await append_all(log, whole_run())
        await until(log, 421)
    source = await _tampered(server, store, seq)
    found = replay(source, LEVELS, means(options))
    assert not any(report.equal for report in found)
    first = found[0].first_difference
    due = whole_run().records[seq - 1]
    assert first is not None
    assert (first.seq, first.id, first.message) == (seq, due.id, due.subject.split(".")[1])
    assert first.what == "missing", "the server drops a record whose checksum is wrong"
