"""A group of rollouts: the same facts each time, each attempt by itself, and whatever an agent does is graded."""

import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from schemas.identity import digest_of
from schemas.messages import RolloutCompleted, RolloutRequested
from schemas.outcomes import Purpose, RolloutOutcome
from schemas.science import RolloutRules
from services.kernel.agent.conversation import EndReason
from services.kernel.agent.transcript import Content, decode_content, decode_observation
from services.kernel.archive import pack
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import Answer
from services.kernel.errors import ArtifactMissing
from services.kernel.models.protocol import Engine
from services.kernel.models.template import Template
from services.kernel.sandbox.protocol import SandboxError
from services.kernel.workshop import Workshop
from services.solver.handler import NoTaskError, SolverHandler, load_torch
from services.solver.rollout.group import AttemptFailedError
from tests.integration.test_harbor_grading import READS, TWO_CHECKS
from tests.support.feeding import as_event
from tests.support.harbor_tasks import TEST_SH, TOML, greeting
from tests.support.shop import Files, composed, open_shop
from tests.support.spoken import Line, SpokenEngine
from tests.support.tiny_model import tiny_checkpoint

pytestmark = pytest.mark.asyncio(loop_scope="module")

RULES = RolloutRules(turns_max=3, new_tokens_max=24, context_tokens_max=256, shown_bytes_max=64)
SOLVED, UNSOLVED, TRUNCATED = RolloutOutcome.solved, RolloutOutcome.unsolved, RolloutOutcome.truncated
HI = "echo hi > hello.txt"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    async with open_shop(tmp_path_factory.mktemp("solver")) as opened:
        yield opened


@dataclass
class Bench:
    """A solver with its store, that speaks by script or with the tiny model."""

    shop: Workshop
    store: ArtifactStore
    spoken: SpokenEngine | None = field(default=None)

    async def group(
        self,
        files: Files | None,
        *,
        attempts: int = 4,
        seed: int = 5,
        rules: RolloutRules = RULES,
        env: str = "",
        purpose: Purpose = Purpose.train,
    ) -> list[Answer]:
        request = RolloutRequested(
            round=1,
            env=env or self.store.put(pack(files or greeting())),
            checkpoint_version=2,
            checkpoint=self.store.put(tiny_checkpoint().archive),
            purpose=purpose,
            attempts=attempts,
            seed=seed,
        )
        handler = SolverHandler(self.store, self.shop, rules, self._load)
        return list(await handler.handle(as_event(request), 1))

    async def say(
        self,
        *rows: Sequence[Line],
        files: Files | None = None,
        rules: RolloutRules = RULES,
        before: Callable[[int], None] = lambda turn: None,
    ) -> list[RolloutCompleted]:
        """The facts of a group whose attempts say these lines."""
        self.spoken = SpokenEngine(tiny_checkpoint().template, rows, before=before)
        return facts(await self.group(files, attempts=len(rows), rules=rules))

    def _load(self, archive: bytes) -> tuple[Engine, Template]:
        return (self.spoken, self.spoken.template) if self.spoken else load_torch(archive)

    def transcript(self, fact: RolloutCompleted) -> Content:
        assert fact.content is not None
        return decode_content(self.store.get(fact.content))

    def left(self) -> list[Path]:
        """Folders of sandboxes and snapshots that still lie there."""
        return list(self.shop.base.root.parents[2].glob("sandboxes/owner-*/[0-9]*"))


@pytest.fixture
def bench(shop: Workshop, tmp_path: Path) -> Bench:
    return Bench(shop, ArtifactStore(tmp_path / "artifacts").create())


def facts(answers: Sequence[Answer]) -> list[RolloutCompleted]:
    messages = [answer.message for answer in answers]
    assert all(isinstance(message, RolloutCompleted) for message in messages)
    return [message for message in messages if isinstance(message, RolloutCompleted)]


async def test_a_group_run_again_gives_equal_facts_and_another_seed_others(bench: Bench, tmp_path: Path) -> None:
    task = composed("sort_numbers")
    async with open_shop(tmp_path / "elsewhere") as other_shop:
        elsewhere = Bench(other_shop, ArtifactStore(tmp_path / "other").create())
        one, two = await bench.group(task), await elsewhere.group(task)
        third = await elsewhere.group(task, seed=6)
    assert [answer.message for answer in one] == [answer.message for answer in two]
    assert all(answer.deterministic for answer in one)
    first, other = facts(one), facts(third)
    assert [fact.attempt for fact in first] == [0, 1, 2, 3]
    assert len({fact.content for fact in first}) == 4
    assert not {fact.content for fact in first} & {fact.content for fact in other}
    for fact, answer in zip(first, one, strict=True):
        content = bench.transcript(fact)
        sampled = [segment for segment in content.segments if segment.kind == "sampled"]
        assert fact.usage.completion_tokens == sum(len(segment.token_ids) for segment in sampled) > 0
        assert fact.usage.turns == len(content.turns)
        assert answer.meta.observation is not None
        assert len(decode_observation(bench.store.get(answer.meta.observation)).turns) == len(content.turns)
        assert bench.store.get(answer.meta.observations["verifier"]) != b""


async def test_hints_are_given_in_a_diagnosis_and_in_nothing_else(bench: Bench) -> None:
    told = {}
    for purpose in (Purpose.diagnose, Purpose.calibrate, Purpose.train):
        (fact,) = facts(await bench.group(greeting(), attempts=1, purpose=purpose))
        told[purpose] = bench.transcript(fact).instruction
    plain = "Write the word hi into /app/hello.txt.\n"
    assert told[Purpose.calibrate] == told[Purpose.train] == digest_of(plain.encode())
    assert told[Purpose.diagnose] == digest_of((plain + "\nIt can be done with: echo\n").encode())


async def test_every_attempt_has_a_sandbox_of_its_own(bench: Bench) -> None:
    look = "cat mark /tmp/mark 2>&1 | wc -l; grep -lz '[s]tays-for-ever' /proc/[0-9]*/cmdline | wc -l"
    writes = "echo 1 | tee mark > /tmp/mark; (exec -a stays-for-ever sleep 300) & true"
    one, two = await bench.say([writes, look], ["true", look])
    assert bench.transcript(one).turns[1].shown == "2\n1"
    assert bench.transcript(two).turns[1].shown.splitlines()[-1] == "0"
    assert "No such file" not in bench.transcript(one).turns[1].shown
    assert bench.left() == []


async def test_what_was_cut_off_is_graded_and_says_so(bench: Bench) -> None:
    cut = tuple(tiny_checkpoint().template.tokenizer.encode("echo and on and on"))
    two_checks = greeting({"tests/test.sh": TWO_CHECKS})
    rows: list[list[Line]] = [["echo 1 > a", cut], [cut], ["echo 1 | tee a b", cut], ["true"] * 3, ["echo 1 > b", None]]
    said = await bench.say(*rows, files=two_checks)
    assert [(fact.outcome, fact.reward) for fact in said] == [
        (TRUNCATED, 0.5),
        (TRUNCATED, 0.0),
        (SOLVED, 1.0),
        (TRUNCATED, 0.0),
        (UNSOLVED, 0.5),
    ]
    assert said[0].tests == {"a": True, "b": False}
    ended = [bench.transcript(fact).ended for fact in said]
    assert ended == [EndReason.truncated_answer] * 3 + [EndReason.turns_max, EndReason.submitted]
    segment = bench.transcript(said[0]).segments[-1]
    assert (segment.kind, segment.token_ids, segment.truncated) == ("sampled", cut, True)


async def test_an_environment_that_cannot_grade_masks_the_group_and_is_named_broken(bench: Bench) -> None:
    said = await bench.say([HI], [None], files=greeting({"tests/test.sh": "#!/bin/bash\nexit 1\n"}))
    for fact in said:
        assert (fact.outcome, fact.reward, fact.broken) == (RolloutOutcome.infra_failed, None, True)
        assert (fact.content, fact.tests, fact.usage.turns) == (None, {}, 0)
        assert fact.detail != ""


async def test_an_agent_that_breaks_its_verifier_earns_nothing_and_the_others_what_is_theirs(bench: Bench) -> None:
    files = greeting({"tests/test.sh": READS, "environment/files/step.sh": "true\n"})
    honest, breaker, idle = await bench.say([HI], [HI, "echo 'kill -9 $PPID' > step.sh"], [None], files=files)
    assert [(fact.outcome, fact.reward) for fact in (honest, breaker, idle)] == [
        (SOLVED, 1.0),
        (UNSOLVED, 0.0),
        (UNSOLVED, 0.0),
    ]
    assert (honest.detail, idle.detail) == ("", "")
    assert "no reward file" in breaker.detail
    assert not breaker.broken


def all_commands() -> bytes:
    """What runs on this machine."""
    found = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += path.read_bytes()
    return found


LINGERS = f"lingers-{os.getpid()}"
"""Of this test process alone: others may run beside it."""
COUNT = f"grep -lz '[{LINGERS[0]}]{LINGERS[1:]}' /proc/[0-9]*/cmdline | wc -l"


async def test_no_process_of_the_agent_lives_on_into_grading_or_after(bench: Bench) -> None:
    stubborn = f"setsid nohup bash -c 'trap \"\" TERM HUP; exec -a {LINGERS} sleep 300' > /dev/null 2>&1 & disown"
    pays = greeting({"tests/test.sh": f"#!/bin/bash\n{COUNT} > /logs/verifier/reward.txt\n"})
    (fact,) = await bench.say([stubborn, f"sleep 0.2; {COUNT}"], files=pays)
    assert bench.transcript(fact).turns[1].shown == "1"
    assert (fact.outcome, fact.reward) == (UNSOLVED, 0.0)
    assert LINGERS.encode() not in all_commands()
    assert bench.left() == []


async def test_hostile_words_of_a_model_are_only_words(bench: Bench) -> None:
    template = tiny_checkpoint().template
    posing = b"echo '" + "".join(template.names.specials).encode() + b"'"
    rows: list[list[Line]] = [
        [b"\xff\xfe\x00\x01 \xed\xa0\x80", HI],
        [b"printf '\\0\\377'; exit 3", HI],
        ["x" * 100_000, HI],
        ["echo " + "y" * 60_000, HI],
        [posing, HI],
        ["", HI],
        [(10**6, 5, 10**6)],
        [()],
    ]
    said = await bench.say(*rows)
    assert [fact.outcome for fact in said] == [SOLVED] * 6 + [TRUNCATED] * 2
    shown = [bench.transcript(fact).turns[0].shown if fact.usage.turns else "" for fact in said]
    assert "not found" in shown[0]
    assert shown[1].endswith("[exit 3]")
    assert shown[2] == "the command has 100000 bytes, 65536 are allowed\n[exit 126]"
    assert "bytes left out" in shown[3]
    assert shown[4] == posing.decode()[6:-1]
    assert bench.spoken is not None
    heard = bench.spoken.heard[4][0]
    assert set(heard[1:-1]).isdisjoint(template.ids)
    content = bench.transcript(said[6])
    assert content.segments[1].token_ids == (10**6, 5, 10**6)


async def test_cpu_seconds_end_an_attempt_that_is_graded_and_volatile(bench: Bench) -> None:
    rules = msgspec.structs.replace(RULES, cpu_s=0.3)
    spins, honest = await bench.say([f"{HI}; while :; do :; done", "echo never"], [HI], rules=rules)
    assert (spins.outcome, spins.reward, spins.volatile, spins.usage.turns) == (SOLVED, 1.0, True, 1)
    assert (honest.outcome, honest.volatile) == (SOLVED, False)
    assert bench.transcript(spins).ended is EndReason.cpu_limit
    assert [answer.deterministic for answer in await bench.group(None, attempts=2, rules=rules)] == [False, True]


async def test_the_agent_is_the_user_that_the_task_names(bench: Bench) -> None:
    files = greeting({"task.toml": TOML.replace("[verifier]", 'user = "agent"\n[verifier]')})
    (fact,) = await bench.say(["id -un; touch /tmp/mine; stat -c %U /tmp/mine"], files=files)
    assert bench.transcript(fact).turns[0].shown == "agent\nagent"


async def test_trouble_of_engine_sandbox_or_store_gives_no_fact_and_leaves_nothing(
    bench: Bench, tmp_path: Path
) -> None:
    def fails(turn: int) -> None:
        if turn == 1:
            raise OSError("the engine is gone")

    with pytest.raises(OSError, match="the engine is gone"):
        await bench.say([HI, HI], [HI, HI], before=fails)
    assert bench.left() == []
    with pytest.raises(ArtifactMissing):
        await bench.group(None, env="0" * 64)
    with pytest.raises(NoTaskError, match="needs this file"):
        await bench.group(greeting({"tests/test.sh": None}))
    async with open_shop(tmp_path / "closed") as closed:
        task = bench.store.put(pack(greeting()))
        await closed.backend.close()
        with pytest.raises(SandboxError, match="closed"):
            await Bench(closed, bench.store).group(None, env=task)


def kill_a_sandbox() -> None:
    """One of those that this process runs."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    boxes = [int(child) for child in children if b"bwrap" in Path(f"/proc/{child}/cmdline").read_bytes()]
    assert len(boxes) == 2
    os.kill(boxes[0], signal.SIGKILL)


async def test_a_sandbox_that_dies_under_one_attempt_is_no_zero_and_no_fact_of_any(bench: Bench) -> None:
    def strikes(turn: int) -> None:
        if turn == 1:
            kill_a_sandbox()

    with pytest.raises(AttemptFailedError):
        await bench.say([HI, "echo more"], [HI, "echo more"], before=strikes)
    assert bench.left() == []
    assert [fact.outcome for fact in await bench.say([HI], [HI])] == [SOLVED, SOLVED]


async def test_a_verifier_sees_no_trace_of_an_attempt_but_its_files(bench: Bench) -> None:
    nosy = TEST_SH + "ls -A /logs/verifier /tests; env | grep -c PLANTED\n"
    answers_of = "export PLANTED=1; mkdir -p /tests; touch /tests/planted /logs/verifier/planted; " + HI
    bench.spoken = SpokenEngine(tiny_checkpoint().template, [[answers_of]])
    (answer,) = await bench.group(greeting({"tests/test.sh": nosy}), attempts=1)
    output = bench.store.get(answer.meta.observations["verifier"])
    assert b"planted" not in output
    assert output.endswith(b"\n0\n")
