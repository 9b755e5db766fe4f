"""The proposer's work: proposals, reasons not to propose, draft checks over the log, and nothing held out in sight."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from schemas.envelope import Meta
from schemas.messages import (
    DraftChecked,
    DraftCheckRequested,
    EnvAbandoned,
    EnvProposed,
    EnvRequested,
    RolloutCompleted,
)
from schemas.outcomes import Abandoned, Direction, Purpose, Role, RolloutOutcome, Verdict
from schemas.parts import Assignment, CitedRollout, Evidence, RosterEntry
from services.cli.heldout import near_set
from services.kernel.agent.conversation import EndReason, Episode, Observation, Turn
from services.kernel.agent.transcript import decode_content, encode
from services.kernel.archive import FileEntry, pack, unpack
from services.kernel.delivery import Speaker, read_event
from services.kernel.workshop import Workshop
from services.proposer.authoring.session import SessionFailedError
from services.proposer.handler import UnknownBrainError
from tests.support.feeding import as_event
from tests.support.proposing import ENTRY, RUN, Bench, request
from tests.support.shop import Files, composed, open_shop
from tests.support.wheel import Wheel, opening

pytestmark = pytest.mark.asyncio(loop_scope="module")

CANARY = b"CANARY-3f9c1d"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    async with open_shop(tmp_path_factory.mktemp("proposing")) as opened:
        yield opened


@pytest.fixture
def bench(shop: Workshop, tmp_path: Path) -> Bench:
    return Bench(shop, tmp_path)


async def test_a_proposal_says_who_made_it_from_what_and_its_drafts_were_checked_on_the_log(bench: Bench) -> None:
    async with bench.validating():
        said = await bench.handle(request())
    assert isinstance(said, EnvProposed)
    assert (said.round, said.slot, said.revision, said.entry, said.parent) == (1, 3, 0, ENTRY, None)
    assert "task.toml" in unpack(bench.store.get(said.env))
    transcript = decode_content(bench.store.get(said.transcript))
    assert len(transcript.turns) == said.usage.turns
    assert transcript.turns[-1].command == "envwheel-draft submit"
    assert said.memory_delta is not None
    assert unpack(bench.store.get(said.memory_delta)).keys() == {"lessons/0001-0003.md"}
    bodies = [read_event(RUN, stored).body async for stored in bench.log.read()]
    asked = [body for body in bodies if isinstance(body, DraftCheckRequested)]
    checked = [body for body in bodies if isinstance(body, DraftChecked)]
    assert [body.draft for body in asked] == [body.draft for body in checked]
    assert (checked[-1].draft, checked[-1].verdict) == (said.env, Verdict.valid)
    assert [event.body_digest for event in map(as_event, [said])] == [
        as_event(await bench.handle(request())).body_digest
    ]


@pytest.mark.parametrize(
    ("commands", "reason", "detail"),
    [
        ([], Abandoned.no_submission, "submitted"),
        (["echo nothing"], Abandoned.no_submission, "submitted"),
        (["true"] * 60, Abandoned.over_budget, "turns_max"),
        (["echo lesson > memory/x.md"], Abandoned.no_submission, "submitted"),
    ],
)
async def test_an_author_without_a_task_abandons_its_slot(
    bench: Bench, commands: list[str], reason: Abandoned, detail: str
) -> None:
    said = await bench.handle(request(revision=1), bench.saying(*commands))
    assert isinstance(said, EnvAbandoned)
    assert (said.reason, said.detail, said.entry, said.revision) == (reason, detail, ENTRY, 1)
    assert said.transcript is not None
    assert len(decode_content(bench.store.get(said.transcript)).turns) == said.usage.turns
    assert (said.memory_delta is not None) == any("memory" in command for command in commands)


async def test_a_draft_that_could_not_be_checked_fails_the_try_and_says_nothing(bench: Bench) -> None:
    def judge(asked: DraftCheckRequested) -> DraftChecked:
        key = {"round": asked.round, "slot": asked.slot, "revision": asked.revision}
        return DraftChecked(**key, draft=asked.draft, verdict=Verdict.infra_failed, gates=())

    async with bench.validating(judge):
        with pytest.raises(SessionFailedError, match="could not be checked"):
            await bench.handle(request())


async def test_a_model_that_nobody_here_can_run_is_named_with_those_that_can(bench: Bench) -> None:
    with pytest.raises(UnknownBrainError, match="no brain 'gpt' here; known: procedural, procedural-b"):
        await bench.handle(request(entry=RosterEntry(name="x", model="gpt")))


def transcript(*commands: str) -> bytes:
    turns = tuple(Turn(command=command, shown="", exit_code=0) for command in commands)
    episode = Episode(instruction="Do it.", turns=turns, measured=(), segments=(), ended=EndReason.submitted)
    return encode(episode)[0]


def marked(files: Files) -> bytes:
    """The archive with the canary at the end of every file."""
    return pack({path: FileEntry(entry.content + CANARY, entry.executable) for path, entry in files.items()})


async def test_only_what_the_request_names_is_read_and_nothing_held_out_is_in_the_workspace(bench: Bench) -> None:
    store = bench.store
    held_out = [store.put(marked(files)) for files in list(near_set().values())[:3]]
    held_out += [store.put(transcript("cat", CANARY.decode())), store.put(CANARY)]
    cited = store.put(transcript("sort -n numbers.txt"))
    parent, previous, past = (store.put(pack(composed("sort_numbers", seed=seed))) for seed in range(3))
    memory = tuple(store.put(pack({f"{name}.md": FileEntry(b"x\n")})) for name in "ab")
    tests = {"sort_numbers__right": False}
    order = Assignment(
        direction=Direction.simpler,
        domain="text",
        seed=11,
        parent=parent,
        pass_rate=0.25,
        commonest_failure="sort_numbers__right",
        rollouts=(CitedRollout(id="1" * 64, content=cited, reward=0.25, tests=tests),),
        past=(past,),
    )
    evidence = Evidence(kind="calibration", detail="too_hard", env=previous, mean=0.0)
    look = f"grep -rlF {CANARY.decode()} /workspace /app /tmp /run /root /logs 2>/dev/null | sort"
    asked = request(revision=1, assignment=order, evidence=evidence, memory=memory)
    await bench.handle(asked, bench.saying(look, "ls", "cat rollouts/000.json rollouts/index.json"))
    assert bench.heard[0] == Observation("", 0)
    assert bench.heard[1].text.split() == [
        "GUIDE.md",
        "assignment.json",
        "memory",
        "parent",
        "past",
        "previous",
        "rollouts",
        "tools",
    ]
    assert bench.heard[2].text.count("sort -n numbers.txt") == 2
    assert sorted(store.read) == sorted([parent, previous, past, cited, *memory])
    assert not set(store.read) & set(held_out)
    # The same look finds a canary where one is.
    planted = request(assignment=Assignment(direction=Direction.new, domain="text", seed=1, past=(held_out[0],)))
    await bench.handle(planted, bench.saying(look))
    assert "/workspace/past/000/instruction.md" in bench.heard[3].text


async def test_an_author_reads_the_whole_order_and_its_proposal_says_what_it_rests_on(bench: Bench) -> None:
    parent, previous = (bench.store.put(pack(composed("sort_numbers", seed=seed))) for seed in range(2))
    cited = CitedRollout(
        id="1" * 64, content=bench.store.put(transcript("ls")), reward=0.25, tests={"sort_numbers__right": False}
    )
    order = Assignment(
        direction=Direction.simpler,
        domain="text",
        seed=11,
        parent=parent,
        pass_rate=0.25,
        commonest_failure="sort_numbers__right",
        rollouts=(cited,),
    )
    evidence = Evidence(kind="calibration", detail="too_hard", env=previous, mean=0.0, commonest_failure="x__y")
    asked = request(revision=1, assignment=order, evidence=evidence, pool_version=4)
    said = await bench.handle(asked, bench.saying("cat assignment.json", "cp -r parent task; envwheel-draft submit"))
    assert json.loads(bench.heard[0].text) == {
        "round": 1,
        "slot": 3,
        "revision": 1,
        "direction": "simpler",
        "domain": "text",
        "seed": 11,
        "parent": parent,
        "pass_rate": 0.25,
        "commonest_failure": "sort_numbers__right",
        "evidence": msgspec.to_builtins(evidence),
    }
    assert isinstance(said, EnvProposed)
    assert (said.env, said.parent, said.cited, said.pool_version) == (parent, parent, (cited.id,), 4)


def completed(bench: Bench, purpose: Purpose, printed: bytes) -> tuple[RolloutCompleted, Meta]:
    body = RolloutCompleted(
        round=0,
        request=purpose.value,
        attempt=0,
        env="e",
        purpose=purpose,
        checkpoint_version=0,
        outcome=RolloutOutcome.unsolved,
        reward=0.0,
        tests={"a": False},
        content=bench.store.put(transcript("ls")),
    )
    return body, Meta(observations={"verifier": bench.store.put(printed)})


async def test_an_author_reads_what_the_verifier_printed_but_not_of_evaluations(bench: Bench) -> None:
    bodies = [
        completed(bench, Purpose.train, b"\x1b[31mfailed\x1b[0m a: 3 is not 4\r\n" + b"x" * 100_000 + b"the end"),
        completed(bench, Purpose.evaluate, CANARY),
    ]
    for body, meta in bodies:
        await bench.log.append([Speaker(RUN, Role.solver).entry(body, meta=meta)])
    cited = tuple(
        CitedRollout(id=body.id, content=body.content or "", reward=0.0, tests={"a": False}) for body, _ in bodies
    )
    order = Assignment(direction=Direction.simpler, domain="text", seed=1, rollouts=cited)
    look = "ls rollouts; cd rollouts; head -n 1 000.verifier.txt; tail -c 7 000.verifier.txt; wc -c < 000.verifier.txt"
    await bench.handle(request(assignment=order), bench.saying(look, f"grep -rlF {CANARY.decode()} . || echo none"))
    *listed, shown = bench.heard[0].text.splitlines()
    assert listed == ["000.json", "000.verifier.txt", "001.json", "index.json", "summary.json", "failed a: 3 is not 4"]
    assert (shown[:7], 30_000 < int(shown[7:]) < 34_000) == ("the end", True)
    assert bench.heard[1].text == "none"


async def test_no_request_of_a_whole_run_names_anything_held_out() -> None:
    events = Wheel(order_seed=4).turn(opening())
    evaluated: set[str] = set()
    for event in events:
        if isinstance(event.body, RolloutCompleted) and event.body.purpose is Purpose.evaluate:
            evaluated |= {event.body.env, event.id, event.body.content or ""}
    requests = [event.body for event in events if isinstance(event.body, EnvRequested)]
    assert len(evaluated) > 10
    assert len(requests) > 10
    for asked in requests:
        order = asked.assignment
        named = {order.parent, *order.past, *asked.memory, asked.evidence.env if asked.evidence else None}
        named |= {value for rollout in order.rollouts for value in (rollout.id, rollout.content)}
        assert not named & evaluated
