"""How a service lives: it waits for its run, works, and ends whole, by order or because going on would be wrong."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from schemas.codec import same_body
from schemas.envelope import Event
from schemas.messages import MESSAGES, RolloutCompleted, UpdatePlanned
from schemas.outcomes import Role
from services.kernel import service
from services.kernel.delivery import Answer, read_event
from services.kernel.errors import OtherVersions, Unreadable
from services.kernel.jetstream_log import connect
from services.kernel.log import Entry, EventLog
from services.kernel.meter import CpuMeter, Watch
from services.kernel.options import ServiceOptions
from tests.support.delivery import RUN, bodies, request, rollouts, say, until
from tests.support.nats import nats_server
from tests.support.wheel import POLICIES, opening


@dataclass
class Handler:
    """Answers at once, or when it is let."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    begun: int = 0
    closed: int = 0

    async def handle(self, event: Event, try_: int) -> Sequence[Answer]:
        self.begun += 1
        await self.gate.wait()
        return [Answer(message) for message in rollouts(event.body)]

    async def close(self) -> None:
        self.closed += 1


@dataclass
class House:
    """A server with a log, and services on it."""

    log: EventLog
    options: ServiceOptions
    handlers: list[Handler] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def build(self, context: service.Context) -> Handler:
        assert context.science == context.run.science
        self.handlers.append(Handler(self.gate))
        return self.handlers[-1]

    def start(self, build: service.Build | None = None, role: Role = Role.solver) -> asyncio.Task[None]:
        serving = service.serve(role, POLICIES[role], build or self.build, self.options, self.stop)
        return asyncio.create_task(serving)

    async def completed(self) -> int:
        return len(await bodies(self.log, RolloutCompleted))


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    with nats_server() as server:
        log = await connect(server.url, RUN, same_body, create=True)
        options = ServiceOptions(
            run=RUN, nats_url=server.url, artifacts=tmp_path / "artifacts", work=tmp_path / "work", slots=2, drain_s=0.3
        )
        yield House(log, options)
        await log.close()


async def test_it_waits_for_its_run_and_a_stop_before_that_ends_it(house: House) -> None:
    serving = house.start()
    await asyncio.sleep(0.2)
    assert not serving.done()
    house.stop.set()
    await asyncio.wait_for(serving, 5)
    assert house.handlers == []


async def test_it_works_until_it_is_told_to_stop_and_closes_what_it_opened(house: House) -> None:
    serving = house.start()
    await say(house.log, opening()[0], request(1))
    house.gate.set()
    await until(lambda: reached(house, 2))
    house.stop.set()
    began = time.monotonic()
    await asyncio.wait_for(serving, 5)
    assert time.monotonic() - began < 2
    assert [handler.closed for handler in house.handlers] == [1]
    assert (house.options.artifacts / "sha256").is_dir()


async def reached(house: House, rollouts_: int) -> bool:
    return await house.completed() >= rollouts_


async def test_work_in_hand_at_a_stop_goes_to_the_next_one_at_once(house: House) -> None:
    first = house.start()
    await say(house.log, opening()[0], request(1))
    await until(lambda: begun(house))
    house.stop.set()
    await asyncio.wait_for(first, 5)
    assert await house.completed() == 0
    house.stop.clear()
    house.gate.set()
    second = house.start()
    await until(lambda: reached(house, 2), patience_s=20)  # far below ack_wait_s
    house.stop.set()
    await asyncio.wait_for(second, 5)
    assert [handler.closed for handler in house.handlers] == [1, 1]


@pytest.mark.parametrize(("role", "at_once"), [(Role.trainer, 1), (Role.solver, 3)])
async def test_of_two_trainers_one_stands_by(house: House, role: Role, at_once: int) -> None:
    updates = [
        UpdatePlanned(
            role=Role.solver, update=n, parent_version=0, checkpoint="", state=None, groups=(), dropped=(), seed=n
        )
        for n in (1, 2)
    ]
    both = [house.start(role=role) for _ in range(2)]
    await say(house.log, opening()[0], *updates, *(request(n) for n in range(3)))
    await until(lambda: begun(house))
    await asyncio.sleep(0.5)
    assert sum(handler.begun for handler in house.handlers) == at_once
    house.stop.set()
    await asyncio.wait_for(asyncio.gather(*both), 10)


async def begun(house: House) -> bool:
    return any(handler.begun for handler in house.handlers)


@pytest.mark.parametrize("stopping", [False, True])
async def test_a_decider_that_must_not_go_on_ends_the_service_also_while_it_drains(
    house: House, stopping: bool
) -> None:
    serving = house.start()
    await say(house.log, opening()[0], request(1))
    await until(lambda: begun(house))
    if stopping:
        house.stop.set()
    await house.log.append([Entry(f"{RUN}.env_painted.0.-.ab", "ab", b"{}")])
    with pytest.raises(Unreadable, match=rf"{RUN}\.env_painted\.0\.-\.ab"):
        await asyncio.wait_for(serving, 5)
    assert [handler.closed for handler in house.handlers] == [1]
    assert await house.completed() == 0


@pytest.mark.parametrize(
    ("pins", "told"),
    [
        ({"policies": {"solver": 2}}, "policy of solver: the run has 2, this code 1"),
        ({"messages": {"round_closed": 3}}, "message round_closed: the run has 3, this code 1"),
        ({"messages": {"env_painted": 1}}, "message env_painted: the run has 1, this code None"),
    ],
)
async def test_a_run_that_began_with_other_versions_is_left_alone(
    house: House, pins: dict[str, dict[str, int]], told: str
) -> None:
    began = opening()[0]
    await say(house.log, msgspec.structs.replace(began, **pins), request(1))
    with pytest.raises(OtherVersions, match=f"^{told}: go on with the version"):
        await asyncio.wait_for(house.start(), 10)
    assert house.handlers == []


async def test_the_versions_of_this_code_take_part(house: House) -> None:
    began = opening()[0]
    pins = {"policies": {role.value: POLICIES[role].VERSION for role in POLICIES}}
    messages = {message.name: message.version for message in MESSAGES}
    await say(house.log, msgspec.structs.replace(began, **pins, messages=messages), request(1))
    house.gate.set()
    serving = house.start()
    await until(lambda: reached(house, 2))
    house.stop.set()
    await asyncio.wait_for(serving, 5)


async def test_a_handler_that_cannot_be_built_ends_the_service(house: House) -> None:
    async def fails(context: service.Context) -> Handler:
        raise OSError(f"no room for {context.options.run}")

    await say(house.log, opening()[0])
    with pytest.raises(OSError, match=f"no room for {RUN}"):
        await asyncio.wait_for(house.start(fails), 10)


async def test_the_run_is_read_from_its_first_record(house: House) -> None:
    await say(house.log, *opening())
    assert await asyncio.wait_for(service.read_run(house.log, RUN), 5) == opening()[0]
    assert [read_event(RUN, stored).seq async for stored in house.log.read()] == [1, 2]


BURN = "import time\nwhile time.process_time() < {}: pass"


def test_the_meter_counts_its_process_and_the_children_waited_for_and_each_second_once() -> None:
    meter = CpuMeter()
    assert meter.take() < 0.05
    subprocess.run([sys.executable, "-c", BURN.format(0.3)], check=True)
    assert 0.3 <= meter.take() < 1.0
    until_s = time.process_time() + 0.1
    while time.process_time() < until_s:
        pass
    parts = [meter.take(), meter.take()]
    assert 0.1 <= sum(parts) < 0.3
    assert parts[1] < 0.05


def test_a_watch_tells_when_work_began_and_how_long_it_took() -> None:
    before_ns, watch = time.time_ns(), Watch()
    time.sleep(0.02)
    assert before_ns <= watch.started_ns <= time.time_ns()
    assert 0.02 <= watch.wall_s() < 5
