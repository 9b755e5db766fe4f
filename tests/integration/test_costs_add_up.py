"""Whole runs, calm and disturbed: every figure of the costs adds up to the events that it came from."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from schemas.messages import EnvAbandoned, EnvProposed, EnvRequested, Message, RolloutRequested, RosterChanged
from schemas.models import ModelRules, Price
from schemas.outcomes import Role
from schemas.parts import RosterEntry, Usage
from services.cli.commands.cost import costs_of, lines_of
from services.kernel.delivery import read_event
from services.kernel.errors import ArtifactMissing
from services.kernel.spool import count_tokens
from tests.support.adding_up import check_costs
from tests.support.delivery import until
from tests.support.memory_wheel import MemoryWheel
from tests.support.script import Script, chance
from tests.support.scripted_mesh import mesh
from tests.support.wheel import RUN, opening, small_science

DEAR = Price(prompt_usd=2.0, cached_usd=0.5, completion_usd=8.0)
CHEAP = Price(prompt_usd=0.1, completion_usd=0.2)
FREE = RosterEntry(name="procedural", model="procedural", share=0.5)


def priced(price: Price) -> RosterEntry:
    rules = ModelRules(endpoint="there", model="m", price=price)
    return RosterEntry(name="asked", model="m", arm="prompt", share=0.5, rules=rules)


@dataclass(frozen=True)
class Troubled(Script):
    """Authors spend tokens; some of the work fails at its first try, after it has spent some."""

    failed: set[str] = field(default_factory=set)

    def answer(self, work: Message) -> list[Message]:
        costly = isinstance(work, EnvRequested | RolloutRequested)
        if costly and chance("trouble", work.id) < 0.15 and work.id not in self.failed:
            self.failed.add(work.id)
            count_tokens(prompt_tokens=400, cached_tokens=100, completion_tokens=30)
            raise ArtifactMissing("ab", "not there yet")
        return super().answer(work)

    def _propose(self, work: EnvRequested) -> EnvProposed | EnvAbandoned:
        prompt = int(1000 * chance("prompt", work.id)) if work.entry.name == "asked" else 0
        usage = Usage(prompt_tokens=prompt, cached_tokens=prompt // 3, completion_tokens=prompt // 4)
        return replace(super()._propose(work), usage=usage)


async def test_costs_of_a_run_with_failed_tries_and_a_changed_price_add_up(tmp_path: Path) -> None:
    started, _ = opening(7, small_science(rounds=2))
    rosters = [
        RosterChanged(ordinal=0, role=Role.proposer, entries=(FREE, priced(DEAR))),
        RosterChanged(ordinal=1, role=Role.proposer, entries=(FREE, priced(CHEAP)), from_round=1),
    ]
    wheel = MemoryWheel(script=Troubled())
    await wheel.turn([started, *rosters])
    records = [stored async for stored in wheel.log.read()]
    total = check_costs(RUN, records, tmp_path)
    assert total.usd > 0
    table = costs_of(RUN, [(stored, read_event(RUN, stored)) for stored in records], ["entry", "outcome"])
    spent = {(line.by["entry"], line.by["outcome"]): line for line in table.lines}
    assert spent["asked", "failed"].prompt_tokens >= 400
    assert spent["asked", "failed"].usd > 0
    assert spent["procedural", "answered"].usd == 0
    assert table.total == total
    [first, valid, *_] = lines_of(table, [])
    assert f"{total.prompt_tokens + total.completion_tokens} tokens" in first
    assert f"{total.making_tokens / total.valid:.0f} tokens" in valid


async def test_costs_of_a_real_mesh_add_up_though_a_service_is_killed(tmp_path: Path) -> None:
    replicas = {Role.proposer: 1, Role.validator: 1, Role.solver: 2, Role.trainer: 1}
    async with mesh(tmp_path, opening(11, small_science(rounds=1)), replicas) as running:
        await until(lambda: asyncio.sleep(0, running.finished.is_set() or "solver-0" in running.in_flight()))
        running.kill("solver-0")
        async with asyncio.timeout(90):
            await running.finished.wait()
        records = [stored async for stored in running.log.read()]
    total = check_costs(RUN, records, tmp_path)
    assert total.completion_tokens > 0
