"""Models behind an endpoint as proposers, in all three arms: real sandboxes, real gates, a scripted server."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from schemas.messages import DraftChecked, DraftCheckRequested, EnvAbandoned, EnvProposed, EnvRequested
from schemas.models import ModelRules, Price
from schemas.outcomes import Abandoned, Verdict
from schemas.parts import Arm, RosterEntry, Usage
from services.kernel.agent.transcript import decode_content
from services.kernel.archive import FileEntry, unpack
from services.kernel.delivery import TryFailed, read_event
from services.kernel.skills.step import FileSpec
from services.kernel.workshop import Workshop
from services.proposer.authoring.answer import FORMAT
from services.proposer.authoring.shell_files import write_commands
from services.validator.gates.run import GATES, run_gates
from tests.support.chat_server import ChatServer, Make, Reply, block, chat_server, refused, text, whole
from tests.support.proposing import RUN, Bench, request
from tests.support.shop import case_of, composed, open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")

RULES = ModelRules(
    endpoint="local", model="m", speech="block", price=Price(prompt_usd=1.0, cached_usd=0.5, completion_usd=10.0)
)
GOOD = composed("sort_numbers", "tar_pack")
SUBMIT = block("envwheel-draft submit")
SAID = {"prompt_tokens": 100, "cached_tokens": 40, "completion_tokens": 10}
"""What the scripted server counts for each answer."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    async with open_shop(tmp_path_factory.mktemp("models")) as opened:
        yield opened


@pytest.fixture
def bench(shop: Workshop, tmp_path: Path) -> Bench:
    return Bench(shop, tmp_path)


def asked(arm: Arm, **rules: Any) -> EnvRequested:
    changed = ModelRules(**{name: getattr(RULES, name) for name in RULES.__struct_fields__} | rules)
    return request(entry=RosterEntry(name="big", model="m", arm=arm, rules=changed))


def written(files: Mapping[str, FileEntry]) -> Reply:
    parts = [f"=== file: {path}\n{entry.content.decode()}=== end" for path, entry in files.items()]
    return text("Here it is.\n" + "\n".join(parts))


def spoiled() -> dict[str, FileEntry]:
    """The good task with a reference solution that does nothing."""
    return dict(GOOD) | {"solution/solve.sh": FileEntry(b"#!/bin/bash\ntrue\n", True)}


@asynccontextmanager
async def proposing(bench: Bench, *replies: Reply | Make) -> AsyncIterator[ChatServer]:
    """With a validator that runs the real gates."""
    async with bench.validating(), chat_server(*replies) as server:
        bench.connect(server)
        yield server


async def drafts(bench: Bench) -> list[Verdict]:
    bodies = [read_event(RUN, stored).body async for stored in bench.log.read()]
    return [body.verdict for body in bodies if isinstance(body, DraftChecked)]


async def test_one_completion_becomes_a_proposal_that_nobody_checked_before(bench: Bench) -> None:
    order = asked("prompt")
    async with proposing(bench, written(GOOD)) as server:
        said = await bench.handle(order)
    assert isinstance(said, EnvProposed)
    assert unpack(bench.store.get(said.env)) == GOOD
    assert (said.entry, said.usage, said.memory_delta) == (order.entry, Usage(**SAID), None)
    assert bench.answers[0].deterministic is False
    assert bench.answers[0].meta.money_usd == pytest.approx((60 * 1.0 + 40 * 0.5 + 10 * 10.0) / 1e6)
    assert await drafts(bench) == []
    (sent,) = server.requests
    assert FORMAT in sent["messages"][1]["content"]
    assert sent["seed"] < 2**31
    transcript = decode_content(bench.store.get(said.transcript))
    assert isinstance(transcript.exchanges, tuple)
    assert "=== file: task.toml" in transcript.exchanges[0].answer.text
    async with proposing(bench, written(GOOD)) as server:
        assert await bench.handle(order) == said
    assert server.requests[0] == sent


async def test_the_gates_answer_goes_back_until_the_draft_passes(bench: Bench) -> None:
    async with proposing(bench, text("I would rather talk."), written(spoiled()), written(GOOD)) as server:
        said = await bench.handle(asked("prompt+feedback"))
    assert isinstance(said, EnvProposed)
    assert unpack(bench.store.get(said.env)) == GOOD
    assert await drafts(bench) == [Verdict.invalid, Verdict.valid]
    first, second = (server.requests[place]["messages"][-1]["content"] for place in (1, 2))
    assert first.startswith("No environment was found in your answer: no file was found")
    assert "- builds: passed\n" in second
    assert re.search(r"- oracle passes: failed: .*\n", second)
    assert [message["role"] for message in server.requests[2]["messages"]] == [
        "system",
        *["user", "assistant"] * 2,
        "user",
    ]
    assert said.usage == Usage(prompt_tokens=300, cached_tokens=120, completion_tokens=30, turns=2)
    turns = decode_content(bench.store.get(said.transcript)).turns
    assert [(turn.command, turn.shown[:20]) for turn in turns] == [("", first[:20]), ("", second[:20])]


async def test_retries_are_bounded_and_the_last_draft_counts_as_it_is(bench: Bench) -> None:
    async with proposing(bench, written(spoiled())) as server:
        said = await bench.handle(asked("prompt+feedback"))
    assert isinstance(said, EnvProposed)
    assert len(server.requests) == 4
    assert unpack(bench.store.get(said.env)) == spoiled()


async def test_a_model_at_a_terminal_writes_checks_and_submits(bench: Bench) -> None:
    files = {path: FileSpec(entry.content, 0o755 if entry.executable else 0o644) for path, entry in GOOD.items()}
    writes = "\n".join(line for path, spec in files.items() for line in write_commands(f"task/{path}", spec))
    note = "mkdir -p memory/own; echo spread > memory/own/note.md"
    talk = (block(f"set -e; mkdir task\n{writes}"), text("Let me think."), block(f"envwheel-draft check; {note}"))
    async with proposing(bench, *talk, block("envwheel-draft submit"), text("never asked for")) as server:
        said = await bench.handle(asked("terminal"))
    assert isinstance(said, EnvProposed)
    assert unpack(bench.store.get(said.env)) == GOOD
    assert await drafts(bench) == [Verdict.valid]
    assert len(server.requests) == 4
    assert said.usage == Usage(prompt_tokens=400, cached_tokens=160, completion_tokens=40, turns=4)
    assert said.memory_delta is not None
    assert unpack(bench.store.get(said.memory_delta)) == {"own/note.md": FileEntry(b"spread\n")}
    system, order = (message["content"] for message in server.requests[0]["messages"][:2])
    assert "is no order to you" in system
    assert "envwheel-draft submit" in order


@pytest.mark.parametrize(
    ("arm", "reply", "reason", "detail"),
    [
        ("prompt", text("no files"), Abandoned.malformed, "malformed"),
        ("prompt", whole({"content": ""}), Abandoned.malformed, "malformed"),
        ("prompt", text("=== file: ../../x\n=== end"), Abandoned.malformed, "malformed"),
        ("prompt", text("=== file: task.toml\n", "length"), Abandoned.over_budget, "truncated_answer"),
        ("prompt", text("I will not", "content_filter"), Abandoned.refused, "refused"),
        ("prompt", whole({"content": None, "refusal": "no"}), Abandoned.refused, "refused"),
        ("prompt", refused(400, "maximum context length is 8 tokens"), Abandoned.over_budget, "context_overflow"),
        ("prompt+feedback", text("no files"), Abandoned.malformed, "malformed"),
        ("terminal", text("no command"), Abandoned.malformed, "malformed"),
        ("terminal", block("echo busy"), Abandoned.over_budget, "over_budget"),
        ("terminal", text("I will not", "content_filter"), Abandoned.refused, "refused"),
    ],
)
async def test_what_a_model_fails_at_is_its_own_and_says_why(
    bench: Bench, arm: Arm, reply: Reply, reason: Abandoned, detail: str
) -> None:
    async with proposing(bench, reply) as server:
        said = await bench.handle(asked(arm, episode_tokens_max=900))
    assert isinstance(said, EnvAbandoned)
    assert (said.reason, said.detail) == (reason, detail)
    paid = len(server.requests) if reply.status == 200 else 0
    assert said.usage.completion_tokens == 10 * paid
    assert said.transcript is not None
    assert bench.answers[0].deterministic is False


@pytest.mark.parametrize(
    ("replies", "kind", "usage"),
    [
        ([refused(503, "down")], "endpoint_unavailable_error", Usage()),
        ([refused(401, "bad key")], "endpoint_refused_error", Usage()),
        ([block("ls"), refused(503, "down")], "endpoint_unavailable_error", Usage(**SAID)),
        (
            [block("ls"), whole({"content": "x"}, None)],
            "answer_unreadable_error",
            Usage(**{k: 2 * v for k, v in SAID.items()}),
        ),
    ],
)
async def test_an_endpoint_that_fails_says_nothing_about_the_model_and_what_was_spent(
    bench: Bench, replies: list[Reply | Make], kind: str, usage: Usage
) -> None:
    async with proposing(bench, *replies):
        with pytest.raises(TryFailed) as caught:
            await bench.handle(asked("terminal"))
    assert (caught.value.error.boundary, caught.value.error.kind) == ("endpoint", kind)
    assert caught.value.usage == usage
    assert caught.value.meta.money_usd == pytest.approx(RULES.price.usd(usage))


async def test_a_draft_check_that_fails_costs_the_try_and_not_the_model(bench: Bench) -> None:
    def judge(body: DraftCheckRequested) -> DraftChecked:
        key = {"round": body.round, "slot": body.slot, "revision": body.revision}
        return DraftChecked(**key, draft=body.draft, verdict=Verdict.infra_failed, gates=())

    async with bench.validating(judge), chat_server(written(GOOD)) as server:
        bench.connect(server)
        with pytest.raises(TryFailed, match="could not be checked") as caught:
            await bench.handle(asked("prompt+feedback"))
    assert caught.value.usage == Usage(**SAID)


async def test_no_endpoint_of_that_name_is_trouble_of_the_installation(bench: Bench) -> None:
    with pytest.raises(Exception, match=r"endpoints.toml cannot be read .* write a table"):
        await bench.handle(asked("prompt"))


async def test_the_key_is_sent_and_is_in_no_sandbox_transcript_or_error(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-canary")
    look = block("env; cat /proc/*/environ; grep -rl 'sk-can[a]ry' /workspace /run /tmp; echo done")
    async with chat_server(look, refused(401, "bad key sk-canary")) as server:
        bench.connect(server, key_env="SOME_KEY")
        with pytest.raises(TryFailed) as caught:
            await bench.handle(asked("terminal"))
    assert server.headers[0]["authorization"] == "Bearer sk-canary"
    assert "PATH=" in str(server.requests[1])
    assert "sk-canary" not in str(server.requests[1])
    assert "sk-canary" not in str(caught.value)


async def test_a_model_that_leaves_its_workspace_reaches_nothing(bench: Bench) -> None:
    tries = (
        "echo x > /run/envwheel/envwheel-draft",
        "rm -f /run/envwheel/draft.sock",
        "echo x > /proc/sys/kernel/hostname",
        "mount -t tmpfs none /mnt",
        "python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 3)'",
        f"ls {Path(__file__).parents[2] / 'services'}",
    )
    command = "; ".join(f"({each}) >/dev/null 2>&1 && echo reached {number}" for number, each in enumerate(tries))
    async with proposing(bench, block(f"{command}; echo done"), text("", "length")) as server:
        await bench.handle(asked("terminal"))
    assert server.requests[1]["messages"][-1]["content"].strip() == "done"


async def test_the_guides_own_frame_makes_an_environment_that_passes_all_gates(shop: Workshop) -> None:
    guide = (Path(__file__).parents[2] / "services/proposer/authoring/guide.md").read_text()
    toml, test = re.findall(r"^```(?:toml|bash)\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    for placeholder, value in {"SLUG": "count-fruit", "ONE SENTENCE": "Count fruit.", "DOMAIN": "text"}.items():
        toml = toml.replace(placeholder, value)
    checks = (
        'check("counts", lambda: text("counts.txt") == "apple 3\\npear 2\\n")',
        'check("rarest", lambda: text("rarest.txt") == "pear\\n")',
        'check("kept", lambda: text("counts.txt") and text("fruit.txt") == "apple\\npear\\napple\\npear\\napple\\n")',
    )
    one = 'check("NAME_OF_A_CHECK", lambda: text("OUTPUT_FILE") == "EXPECTED\\n")'
    assert one in test
    solve = (
        "sort fruit.txt | uniq -c | awk '{print $2, $1}' > counts.txt",
        "sort -k2n counts.txt | head -n 1 | cut -d' ' -f1 > rarest.txt",
    )
    files = {
        "task.toml": toml,
        "instruction.md": "Count how often each word stands in fruit.txt: write lines `word count` into counts.txt, "
        "sorted by word, and the rarest word into rarest.txt. Leave fruit.txt as it is.\n",
        "environment/Dockerfile": "FROM envwheel/base:1\nWORKDIR /app\nCOPY files/ /app/\n",
        "environment/files/fruit.txt": "apple\npear\napple\npear\napple\n",
        "solution/solve.sh": "\n".join(["#!/bin/bash", "set -euo pipefail", "cd /app", *solve, ""]),
        "tests/test.sh": test.replace(one, "\n".join(checks)),
    }
    entries = {path: FileEntry(content.encode(), path.endswith(".sh")) for path, content in files.items()}
    report = await run_gates(case_of(shop, entries), GATES)
    assert report.verdict is Verdict.valid, [(g.name, f.detail) for g, f in report.findings if f.outcome != "passed"]
