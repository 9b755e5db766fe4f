"""Fifty swaps of the proposer in a running round, with services and the server killed in between.

Operations: a change of the roster at once, then the first request that is issued under it is waited for; after every
fourth one a piece is killed. Then the checker reads the log: each slot has one request for each revision, each request
one answer, and every request names who the roster named where it was decided.
"""

import asyncio
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import pytest

from schemas.envelope import Event
from schemas.messages import EnvAbandoned, EnvProposed, EnvRequested, Message, RosterChanged, RoundPlanned, RunFinished
from schemas.outcomes import Role
from schemas.parts import RosterEntry
from schemas.science import EvaluationRules, PoolRules, ProposalRules, TrainingRules
from schemas.topology import DECIDERS
from services.proposer import policy
from tests.support.scripted_mesh import NATS, Mesh, mesh
from tests.support.wheel import hidden, opening, small_science

SWAPS = 50
KILL_EVERY = 4
TIMEOUT_S = 300.0
REPLICAS = {Role.proposer: 1, Role.validator: 1, Role.solver: 1, Role.trainer: 1}


def begin() -> list[Message]:
    """One round that asks for more than `open_max` environments for each swap: all swaps fall into it anywhere."""
    science = small_science(
        rounds=1,
        proposal=ProposalRules(open_max=2, revisions_max=2),
        pool=PoolRules(target=64, admit_per_round=64, waves_max=1),
        training=TrainingRules(updates_per_round=0, groups=1, attempts=2),
        evaluation=EvaluationRules(near_attempts=1, far_attempts=1),
    )
    return opening(seed=5, science=science)


def change(ordinal: int) -> RosterChanged:
    name = f"swap-{ordinal}"
    return RosterChanged(ordinal=ordinal, role=Role.proposer, entries=(RosterEntry(name=name, model="m"),))


async def effect(running: Mesh, name: str) -> bool:
    """Waits for the first request under the entry; False where the run ended without one."""
    while not running.finished.is_set():
        if any(isinstance(event.body, EnvRequested) and event.body.entry.name == name for event in running.events):
            return True
        await asyncio.sleep(0.005)
    return False


@dataclass
class Swapped:
    """When each swap was said, and after which of them something was killed."""

    said_ns: dict[str, int] = field(default_factory=dict)
    killed: set[str] = field(default_factory=set)


async def swap_and_kill(running: Mesh, chooser: random.Random) -> Swapped:
    done = Swapped()
    places = [*(f"{role.value}-0" for role in DECIDERS), NATS]
    for ordinal in range(1, SWAPS + 1):
        name = f"swap-{ordinal}"
        done.said_ns[name] = time.time_ns()
        await running.say([change(ordinal)])
        if ordinal % KILL_EVERY == 0:
            kills = len(done.killed)
            running.kill(places[kills] if kills < len(places) else chooser.choice(places))
            done.killed.add(name)
        assert await effect(running, name), f"the round was over after {ordinal} swaps"
    return done


def check_nothing_is_lost_or_doubled(events: list[Event]) -> None:
    requested = [event.body.key() for event in events if isinstance(event.body, EnvRequested)]
    answered = [event.body.key() for event in events if isinstance(event.body, EnvProposed | EnvAbandoned)]
    assert len(requested) == len(set(requested))
    assert sorted(requested) == sorted(answered)
    planned = {(e.body.round, slot.slot) for e in events if isinstance(e.body, RoundPlanned) for slot in e.body.slots}
    assert {key[:2] for key in requested} == planned


def check_work_ends_under_the_entry_it_was_bound_to(events: list[Event]) -> None:
    bound = {event.body.key(): event.body.entry for event in events if isinstance(event.body, EnvRequested)}
    for event in events:
        if isinstance(event.body, EnvProposed | EnvAbandoned):
            assert event.body.entry == bound[event.body.key()]


def check_every_request_follows_from_the_log(events: list[Event]) -> None:
    """The requests as the policy decides them, read in the order of the log: the entry is the one that stood there."""
    view, roster = policy.initial(), "procedural"
    said: list[EnvRequested] = []
    for event in events:
        if hidden(Role.proposer, event):
            continue
        if isinstance(event.body, RosterChanged):
            roster = event.body.entries[0].name
        view = policy.fold(view, event)
        for message in policy.decide(view, event):
            if isinstance(message, EnvRequested):
                assert message.entry.name == roster
                said.append(message)
    recorded = {event.id: event.body for event in events if isinstance(event.body, EnvRequested)}
    assert {message.id: message for message in said} == recorded


def told(events: list[Event], swapped: Swapped) -> str:
    """From each swap to the first request under it. Requests are issued as slots become free, which is part of it."""
    first: dict[str, int] = {}
    for event in events:
        if isinstance(event.body, EnvRequested):
            first.setdefault(event.body.entry.name, event.meta.at_ns)
    waits = sorted((first[name] - said_ns) / 1e9 for name, said_ns in swapped.said_ns.items())
    return (
        f"{len(waits)} swaps, {len(swapped.killed)} kills; from a swap to the first request under it: "
        f"median {median(waits):.3f} s, longest {waits[-1]:.3f} s"
    )


@pytest.mark.slow
async def test_fifty_swaps_with_kills_in_between_lose_and_double_no_assignment(tmp_path: Path) -> None:
    async with mesh(tmp_path, begin(), REPLICAS) as running:
        async with asyncio.timeout(TIMEOUT_S):
            swapped = await swap_and_kill(running, random.Random(3))
            await running.finished.wait()
        events = list(running.events)
    assert any(isinstance(event.body, RunFinished) for event in events)
    assert len({event.id for event in events}) == len(events)
    assert len(swapped.killed) > len(DECIDERS) + 1
    check_nothing_is_lost_or_doubled(events)
    check_work_ends_under_the_entry_it_was_bound_to(events)
    check_every_request_follows_from_the_log(events)
    sys.stdout.write(told(events, swapped) + "\n")
