"""The validator's work: verdicts with their evidence stored, drafts that learn no hidden evidence, the named pool."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from schemas.codec import same_body
from schemas.messages import (
    DraftChecked,
    DraftCheckRequested,
    EnvImported,
    EnvProposed,
    EnvRechecked,
    EnvRecheckRequested,
    EnvValidated,
    Message,
    PoolChanged,
)
from schemas.outcomes import GateOutcome, Role, Verdict
from schemas.parts import RosterEntry, Usage
from schemas.science import Science
from services.kernel.archive import pack
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import Answer, Speaker
from services.kernel.errors import ArtifactMissing, Unreadable
from services.kernel.heldout.grams import HeldOutText, build_grams, read_grams
from services.kernel.memory import MemoryLog
from services.kernel.workshop import Workshop
from services.validator.gates.likeness import sketch_of
from services.validator.handler import HIDDEN_DETAIL, ValidatorHandler
from tests.support.feeding import as_event
from tests.support.harbor_tasks import greeting
from tests.support.shop import composed, open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUN = "test"
HELD_OUT = "Carry all thirteen lanterns of the lighthouse down into the cellar before the next tide comes in."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    async with open_shop(tmp_path_factory.mktemp("validator")) as opened:
        yield opened


class Bench:
    """A handler with its log and store."""

    def __init__(self, shop: Workshop, folder: Path) -> None:
        self.log, self.store = MemoryLog(RUN, same_body), ArtifactStore(folder / "artifacts").create()
        self.handler = ValidatorHandler(
            run=RUN,
            log=self.log,
            artifacts=self.store,
            workshop=shop,
            grams=read_grams(build_grams([HeldOutText((HELD_OUT,))])),
            science=Science(),
        )

    async def handle(self, message: Message) -> Answer:
        (answer,) = await self.handler.handle(as_event(message), 1)
        return answer

    async def say(self, message: Message) -> None:
        await self.log.append([Speaker(RUN, Role.validator).entry(message)])


@pytest.fixture
def bench(shop: Workshop, tmp_path: Path) -> Bench:
    return Bench(shop, tmp_path)


def proposed(env: str, *, pool_version: int = 0) -> EnvProposed:
    return EnvProposed(
        round=1,
        slot=2,
        revision=0,
        env=env,
        parent=None,
        cited=(),
        entry=RosterEntry(name="procedural", model="procedural"),
        checkpoint=None,
        transcript="0" * 64,
        usage=Usage(),
        pool_version=pool_version,
    )


async def test_a_verdict_names_every_gate_and_its_evidence_is_in_the_store(bench: Bench) -> None:
    files = composed("tar_pack")
    answer = await bench.handle(proposed(bench.store.put(pack(files))))
    said = answer.message
    assert isinstance(said, EnvValidated)
    assert (said.round, said.slot, said.revision, said.verdict) == (1, 2, 0, Verdict.valid)
    assert said.sketch == sketch_of(files)
    assert {gate.outcome for gate in said.gates} == {GateOutcome.passed}
    evidence = {gate.gate: msgspec.json.decode(bench.store.get(gate.evidence)) for gate in said.gates if gate.evidence}
    assert evidence["oracle passes"]["reward"] == 1.0
    assert evidence["not flaky"]["runs"] == 6
    observed = {name: msgspec.json.decode(bench.store.get(what)) for name, what in answer.meta.observations.items()}
    assert {"oracle passes", "no-op fails"} <= observed.keys()
    assert answer.meta.cpu_s is not None
    assert answer.meta.cpu_s > 0
    assert answer.meta.sandbox_cpu_s == pytest.approx(sum(each["cpu_s"] for each in observed.values()), abs=0.02)
    assert not answer.deterministic


async def test_the_same_work_gives_the_same_body(bench: Bench) -> None:
    work = proposed(bench.store.put(pack(greeting({"solution/solve.sh": "#!/bin/bash\n"}))))
    one, two = await bench.handle(work), await bench.handle(work)
    assert one.message == two.message
    assert isinstance(one.message, EnvValidated)
    assert one.message.verdict is Verdict.invalid


async def test_a_draft_learns_that_it_is_contaminated_and_not_by_what(bench: Bench) -> None:
    draft = bench.store.put(pack(greeting({"instruction.md": HELD_OUT})))
    before = set(bench.store)
    work = DraftCheckRequested(round=1, slot=2, revision=1, draft=draft, pool_version=0)
    said = (await bench.handle(work)).message
    assert isinstance(said, DraftChecked)
    assert (said.draft, said.revision, said.verdict) == (draft, 1, Verdict.invalid)
    hidden = said.gates[1]
    assert (hidden.gate, hidden.outcome, hidden.detail, hidden.evidence) == (
        "decontaminated",
        GateOutcome.failed,
        HIDDEN_DETAIL,
        None,
    )
    stored = b"".join(bench.store.get(digest) for digest in set(bench.store) - before)
    assert b"lantern" not in stored
    assert [gate.gate for gate in said.gates][-1] == "no-op fails"


async def test_the_pool_is_that_of_the_version_which_the_work_names(bench: Bench) -> None:
    member = bench.store.put(pack(composed("sort_numbers", "copy_file")))
    await bench.say(PoolChanged(round=0, pool_version=1, members=(member,), added=(), retired=()))
    first = (await bench.handle(proposed(member, pool_version=0))).message
    second = (await bench.handle(proposed(member, pool_version=1))).message
    assert isinstance(first, EnvValidated)
    assert isinstance(second, EnvValidated)
    assert (first.verdict, second.verdict) == (Verdict.valid, Verdict.invalid)
    failed = next(gate for gate in second.gates if gate.outcome is GateOutcome.failed)
    assert (failed.gate, failed.detail) == ("not a duplicate", f"the pool has this environment: {member[:12]}")
    with pytest.raises(Unreadable, match="pool version 2 is not in the log"):
        await bench.handle(proposed(member, pool_version=2))


async def test_a_copy_of_its_parent_is_a_duplicate_also_where_the_parent_is_in_no_pool(bench: Bench) -> None:
    env = bench.store.put(pack(greeting()))
    said = (await bench.handle(msgspec.structs.replace(proposed(env), parent=env))).message
    assert isinstance(said, EnvValidated)
    failed = next(gate for gate in said.gates if gate.outcome is GateOutcome.failed)
    assert failed.gate == "not a duplicate"


async def test_an_imported_environment_is_judged_and_a_missing_one_is_trouble_of_the_store(bench: Bench) -> None:
    env = bench.store.put(pack(greeting()))
    said = (await bench.handle(EnvImported(ordinal=3, env=env, source="here", licence="CC0-1.0"))).message
    assert isinstance(said, EnvRechecked)
    assert (said.env, said.ordinal, said.verdict) == (env, 3, Verdict.valid)
    with pytest.raises(ArtifactMissing):
        await bench.handle(proposed("0" * 64))


async def test_a_recheck_is_answered_in_its_round_and_a_member_is_no_duplicate_of_itself(bench: Bench) -> None:
    env = bench.store.put(pack(greeting({"solution/solve.sh": "#!/bin/bash\n:\n"})))
    await bench.say(PoolChanged(round=1, pool_version=2, members=(env,), added=(), retired=()))
    work = EnvRecheckRequested(round=2, env=env, ordinal=2, base_digest="0" * 64, cause="aged")
    said = (await bench.handle(work)).message
    assert isinstance(said, EnvRechecked)
    assert (said.round, said.ordinal, said.verdict) == (2, 2, Verdict.invalid)
    outcomes = {gate.gate: gate.outcome for gate in said.gates}
    assert outcomes["not a duplicate"] is GateOutcome.passed
    assert outcomes["oracle passes"] is GateOutcome.failed
    assert all(gate.evidence is None or gate.evidence in set(bench.store) for gate in said.gates)
