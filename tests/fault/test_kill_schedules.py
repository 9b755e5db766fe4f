"""SIGKILL of every service and of nats-server while their work is in flight: the same digests as a calm run.

Operations: kills at drawn moments, each of a replica whose work is in flight (seen from its notes), until every service
and the server were hit; killed pieces start again at once. Then the checker reads the log: every round has the digest
of the calm run, the checkpoints are the same, no id is there twice, no work is without its answer.
"""

import asyncio
import random
from pathlib import Path

import pytest

from schemas.messages import CheckpointPublished, Message, RoundClosed, RunFinished, WorkStarted
from schemas.outcomes import Role
from schemas.topology import DECIDERS
from tests.support.scripted_mesh import NATS, Mesh, mesh
from tests.support.wheel import Wheel, opening, small_science

SCHEDULES = 20
TOGETHER = 5
TIMEOUT_S = 90.0
REPLICAS = {Role.proposer: 1, Role.validator: 1, Role.solver: 2, Role.trainer: 1}


def begin() -> list[Message]:
    return opening(seed=11, science=small_science(rounds=2))


def outcome(bodies: list[Message]) -> tuple[list[str], list[str]]:
    closed = [body.digest for body in bodies if isinstance(body, RoundClosed)]
    checkpoints = [body.checkpoint for body in bodies if isinstance(body, CheckpointPublished)]
    return closed, checkpoints


async def disturb(running: Mesh, chooser: random.Random) -> dict[str, int]:
    """Kill until every role and the server were hit in flight, or the run is over. Counts by what was hit."""
    hits: dict[str, int] = {}
    wanted = {role.value for role in DECIDERS} | {NATS}
    while not running.finished.is_set() and wanted != set(hits):
        await asyncio.sleep(chooser.uniform(0.01, 0.04))
        flying = running.in_flight()
        open_ = [place for place in sorted(flying) if place.split("-")[0] in wanted - set(hits)]
        if NATS not in hits and flying:
            open_.append(NATS)
        if open_ and chooser.random() < 0.4:
            place = chooser.choice(open_)
            running.kill(place)
            name = place.split("-")[0]
            hits[name] = hits.get(name, 0) + 1
    return hits


async def one_schedule(folder: Path, seed: int) -> tuple[dict[str, int], Mesh]:
    async with mesh(folder, begin(), REPLICAS) as running:
        hits = await disturb(running, random.Random(seed))
        async with asyncio.timeout(TIMEOUT_S):
            await running.finished.wait()
        return hits, running


def check(running: Mesh) -> None:
    bodies = [event.body for event in running.events]
    ids = [event.id for event in running.events]
    assert len(ids) == len(set(ids))
    assert isinstance(bodies[-1], RunFinished) or any(isinstance(body, RunFinished) for body in bodies)
    started = {body.work_id for body in bodies if isinstance(body, WorkStarted)}
    answered = {event.meta.cause for event in running.events if not isinstance(event.body, WorkStarted)}
    assert started <= answered, "work was started and never answered"


def cut_off(running: Mesh) -> int:
    """Tries that were followed by a further try of the same work: what the kills cut off."""
    return sum(isinstance(event.body, WorkStarted) and event.body.try_ > 1 for event in running.events)


@pytest.mark.slow
async def test_twenty_kill_schedules_end_with_the_digests_of_a_calm_run(tmp_path: Path) -> None:
    calm = outcome([event.body for event in Wheel().turn(begin())])
    gate = asyncio.Semaphore(TOGETHER)

    async def run(seed: int) -> tuple[dict[str, int], Mesh]:
        async with gate:
            return await one_schedule(tmp_path / str(seed), seed)

    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(run(seed)) for seed in range(SCHEDULES)]
    for each in runs:
        hits, running = each.result()
        assert set(hits) == {role.value for role in DECIDERS} | {NATS}, hits
        assert outcome([event.body for event in running.events]) == calm
        assert cut_off(running) > 0
        check(running)


@pytest.mark.parametrize("solvers", [1, 3])
async def test_the_number_of_solvers_does_not_change_a_digest(tmp_path: Path, solvers: int) -> None:
    calm = outcome([event.body for event in Wheel().turn(begin())])
    async with mesh(tmp_path, begin(), REPLICAS | {Role.solver: solvers}) as running:
        async with asyncio.timeout(TIMEOUT_S):
            await running.finished.wait()
        assert outcome([event.body for event in running.events]) == calm
        check(running)
