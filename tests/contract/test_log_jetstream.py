"""What the JetStream log holds beyond the contract: write-once streams, rights, restarts, lost answers."""

import asyncio
import gc
import time
import warnings
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path

import pytest

from services.kernel.errors import LogClosed, LogDenied, LogGap, LogRefused, LogTooLarge, LogUnavailable, LogUnknown
from services.kernel.jetstream import Connection
from services.kernel.jetstream_log import JetStreamLog, connect
from services.kernel.log import Entry, EventLog, LogConflict, WorkQueue
from services.kernel.nats_server import NatsServer, NatsUser
from tests.support.nats import nats_server
from tests.support.proxy import lossy_proxy

SECRET = "a-password-of-this-test"  # noqa: S105


def same(stored: bytes, mine: bytes) -> bool:
    return stored == mine


def entry(key: str, data: str = "x") -> Entry:
    return Entry(f"run1.{key}", key, data.encode())


opened = partial(connect, run="run1", same=same, create=True, patience_s=10.0)


async def subjects(log: EventLog) -> list[str]:
    return [record.subject async for record in log.read()]


async def test_nothing_on_the_stream_can_be_deleted_or_purged() -> None:
    with nats_server() as server:
        log = await opened(server.url)
        await log.append([entry("a.1")])
        connection = await Connection.open(server.url)

        with pytest.raises(LogRefused, match="message delete not permitted"):
            await connection.api("STREAM.MSG.DELETE.run_run1", {"seq": 1})
        with pytest.raises(LogRefused, match="stream purge not permitted"):
            await connection.api("STREAM.PURGE.run_run1")
        config = {"name": "run_run1", "subjects": ["run1.>"], "storage": "file", "allow_direct": True}
        with pytest.raises(LogRefused, match="can not cancel deny"):
            await connection.api("STREAM.UPDATE.run_run1", config)

        assert await subjects(log) == ["run1.a.1"]
        await connection.close()
        await log.close()


async def test_a_stream_of_an_older_release_is_taken_with_its_own_bound_on_entries() -> None:
    with nats_server() as server:
        connection = await Connection.open(server.url)
        await JetStreamLog(connection, "run1", same, entry_bytes_max=1000).create()
        log = JetStreamLog(connection, "run1", same)
        await log.create()
        await log.append([entry("a.1")])
        with pytest.raises(LogRefused, match="message size exceeds maximum"):
            await log.append([Entry("run1.a.2", "2", b"x" * 3000)])
        assert await subjects(log) == ["run1.a.1"]
        await connection.close()


async def test_a_stream_that_could_lose_records_is_refused() -> None:
    with nats_server() as server:
        connection = await Connection.open(server.url)
        config = {"name": "run_run1", "subjects": ["run1.>"], "storage": "memory", "max_age": 10**12, "max_msgs": 10}
        await connection.api("STREAM.CREATE.run_run1", config)

        with pytest.raises(LogRefused, match=r"not write-once and durable.*'storage': 'memory'"):
            await connect(server.url, "run1", same)
        with pytest.raises(LogRefused, match=r"not write-once and durable.*'storage': 'memory'"):
            await opened(server.url)
        with pytest.raises(LogRefused, match="stream not found"):
            await connect(server.url, "run2", same)
        await connection.close()


async def test_a_deleted_record_in_the_middle_is_reported_as_a_gap() -> None:
    with nats_server() as server:
        connection = await Connection.open(server.url)
        await connection.api(
            "STREAM.CREATE.run_run1", {"name": "run_run1", "subjects": ["run1.>"], "allow_direct": True}
        )
        log = JetStreamLog(connection, "run1", same)
        for n in range(1, 4):
            await log.append([entry(f"a.{n}")])
        await connection.api("STREAM.MSG.DELETE.run_run1", {"seq": 2})

        with pytest.raises(LogGap, match="position 2 of the stream is missing, the next one is 3"):
            await subjects(log)
        await log.close()


async def test_no_server_is_said_within_the_time_given() -> None:
    with nats_server() as server:
        url = server.url
    began = time.monotonic()
    with pytest.raises(LogUnavailable, match=r"no NATS server answers at nats://127\.0\.0\.1") as caught:
        await Connection.open(url.replace("//", "//me:secret@"), connect_timeout_s=0.5)
    assert time.monotonic() - began < 2.0
    assert "secret" not in str(caught.value)
    assert (caught.value.took_effect, caught.value.retry) == (False, True)


async def test_a_denied_subject_fails_at_once_and_names_the_right_that_is_missing() -> None:
    inbox = "_INBOX_solver.>"
    reads = ("$JS.API.STREAM.INFO.run_run1", "$JS.API.DIRECT.GET.run_run1.run1.>")
    users = [
        NatsUser("admin", SECRET),
        NatsUser("solver", SECRET, publish=("run1.rollout_completed.>", *reads), subscribe=(inbox,)),
    ]
    with nats_server(users) as server:
        admin = await opened(server.url, user="admin", password=SECRET)
        solver = await connect(
            server.url, "run1", same, user="solver", password=SECRET, inbox_prefix="_INBOX_solver", patience_s=20.0
        )
        assert (await solver.append([entry("rollout_completed.1")])).seqs == (1,)

        began = time.monotonic()
        with pytest.raises(LogDenied, match=r"publish on 'run1\.env_validated\.1'"):
            await solver.append([entry("env_validated.1")])
        with pytest.raises(LogDenied, match="consumer"):
            await subjects(solver)
        with pytest.raises(LogDenied, match="consumer"):
            await solver.work("solver", ("run1.>",))
        assert time.monotonic() - began < 2.0

        with pytest.raises(LogDenied, match="connect"):
            await connect(server.url, "run1", same, user="solver", password=SECRET[1:])
        assert await subjects(admin) == ["run1.rollout_completed.1"]
        await solver.close()
        await admin.close()


async def test_a_user_without_the_right_to_its_inbox_is_told_so() -> None:
    users = [NatsUser("solver", SECRET, subscribe=("_INBOX_solver.>",))]
    with nats_server(users) as server:
        began = time.monotonic()
        with pytest.raises(LogDenied, match="subscription"):
            await connect(server.url, "run1", same, user="solver", password=SECRET, inbox_prefix="_INBOX_other")
        assert time.monotonic() - began < 2.0


async def test_what_is_over_the_servers_own_limit_is_a_clear_error() -> None:
    with nats_server() as server:
        connection = await Connection.open(server.url)
        with pytest.raises(LogTooLarge, match="max_payload"):
            await connection.publish("run1.a.1", b"x" * (2**23 + 1))
        await connection.close()


async def test_readers_writers_and_workers_go_on_after_the_server_was_killed() -> None:
    with nats_server() as server:
        log = await opened(server.url)
        await log.append([entry("a.1")])
        queue = await log.work("w", ("run1.a.*",), ack_wait_s=1.0)
        seen: list[str] = []

        async def follow() -> None:
            async with aclosing(log.read(follow=True)) as records:
                async for record in records:
                    seen.append(record.subject)
                    if record.seq == 4:
                        return

        following = asyncio.create_task(follow())
        working = asyncio.create_task(done_work(queue, 4))
        await asyncio.sleep(0.1)
        for n in (2, 3, 4):
            server.kill()
            appending = asyncio.create_task(log.append([entry(f"a.{n}")]))
            await asyncio.sleep(0.05)
            server.start()
            assert (await appending).seqs == (n,)

        await asyncio.wait_for(following, 20.0)
        assert seen == [f"run1.a.{n}" for n in range(1, 5)]
        assert await asyncio.wait_for(working, 20.0) == set(seen)
        await settled(queue, set(seen))
        await queue.close()
        await log.close()


async def settled(queue: WorkQueue, known: set[str]) -> None:
    """A killed server may forget an ack that it took (it saves them with a delay): then known work comes once more."""
    for _ in range(2 * len(known)):
        delivery = await queue.next(0.5)
        if delivery is None:
            return
        assert delivery.stored.subject in known
        assert delivery.deliveries > 1
        await delivery.ack()
    pytest.fail("acknowledged work comes again and again from a server that lives")


async def done_work(queue: WorkQueue, count: int) -> set[str]:
    """Acknowledges until `count` different work messages are done; a lost ack brings its message again."""
    done: set[str] = set()
    while len(done) < count:
        delivery = await queue.next(20.0)
        assert delivery is not None
        with suppress(LogUnknown, LogUnavailable):
            await delivery.ack()
            done.add(delivery.stored.subject)
    return done


async def test_a_server_that_dies_while_it_says_hello_leaves_no_open_socket() -> None:
    hellos = asyncio.Semaphore(0)

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hellos.release()
        writer.close()

    with nats_server() as server:
        log = await opened(server.url)
        server.kill()
        async with await asyncio.start_server(hang_up, "127.0.0.1", server.port):
            async with asyncio.timeout(10.0):
                for _ in range(3):
                    await hellos.acquire()
        server.start()
        assert (await log.append([entry("a.1")])).seqs == (1,)
        await log.close()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        gc.collect()
    assert [str(each.message) for each in seen] == []


async def test_an_append_whose_answer_is_lost_is_stored_once_and_reported_as_done() -> None:
    with nats_server() as server:
        async with lossy_proxy(server.port) as proxy:
            log = await opened(proxy.url)
            for n in range(4):
                proxy.lose_answers = True
                single = await log.append([entry(f"single.{n}")])
                assert single.seqs == (4 * n + 1,)
                proxy.lose_answers = True
                batch = await log.append([entry(f"batch.{n}_{i}") for i in range(3)])
                assert batch.seqs == (4 * n + 2, 4 * n + 3, 4 * n + 4)
            assert proxy.cuts == 8
            proxy.lose_answers = True
            with pytest.raises(LogConflict):
                await log.append([entry("single.0", "other")])
            await log.close()
        direct = await connect(server.url, "run1", same)
        assert await direct.last_seq() == 16
        await direct.close()


async def test_a_batch_cut_off_in_the_middle_stores_nothing() -> None:
    with nats_server() as server:
        log = await opened(server.url)
        connection = await Connection.open(server.url)
        for number in range(1, 6):
            headers = {"Nats-Batch-Id": "torn", "Nats-Batch-Sequence": str(number)}
            await connection.publish(f"run1.a.{number}", b"torn", headers)
        await connection.request("$JS.API.INFO", b"")
        await connection.close()

        await log.append([entry("a.3", "whole")])

        assert [(r.seq, r.subject, r.data) async for r in log.read()] == [(1, "run1.a.3", b"whole")]
        await log.close()


async def test_a_read_left_early_leaves_no_consumer_behind() -> None:
    with nats_server() as server:
        log = await opened(server.url)
        await log.append([entry(f"a.{n}") for n in range(10)])
        async with aclosing(log.read(follow=True)) as records:
            async for _ in records:
                break
        connection = await Connection.open(server.url)
        assert (await connection.api("STREAM.INFO.run_run1"))["state"]["consumer_count"] == 0
        await connection.close()
        await log.close()


async def test_the_log_is_there_again_in_a_new_server_on_the_same_folder(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as server:
        log = await opened(server.url)
        await log.append([entry("a.1"), entry("a.2")])
        await log.close()
    with NatsServer(tmp_path) as server:
        log = await opened(server.url)
        assert (await log.append([entry("a.1"), entry("a.2")])).stored is False
        assert await subjects(log) == ["run1.a.1", "run1.a.2"]
        await log.close()


async def test_readers_and_workers_of_a_closed_connection_end_with_that_error() -> None:
    with nats_server() as server:
        log = await opened(server.url)
        queue = await log.work("w", ("run1.a.*",))

        async def follow() -> None:
            async with aclosing(log.read(follow=True)) as records:
                async for _ in records:
                    pass

        ending = [asyncio.create_task(follow()), asyncio.create_task(done_work(queue, 1))]
        await asyncio.sleep(0.1)
        await log.close()

        results = await asyncio.wait_for(asyncio.gather(*ending, return_exceptions=True), 5.0)
        assert [type(result) for result in results] == [LogClosed, LogClosed]
        with pytest.raises(LogClosed):
            await log.append([entry("a.1")])
        await queue.close()
