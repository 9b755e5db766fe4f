"""A model behind an endpoint at work in a real sandbox: both ways to speak, and every way to fail."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from schemas.models import ModelRules, Price
from services.kernel.agent.chat_brain import PROBLEMS_MAX, ChatBrain
from services.kernel.agent.conversation import EndReason, Episode, HarnessLimits
from services.kernel.agent.harness import run_group
from services.kernel.agent.transcript import decode_content, encode
from services.kernel.models.chat.client import ChatClient
from services.kernel.models.chat.endpoint import Endpoint
from services.kernel.models.chat.message import TokenUsage
from services.kernel.sandbox.protocol import Limits
from tests.support.chat_server import ChatServer, Make, Reply, block, call, chat_server, refused, streamed, text, whole
from tests.support.sandboxes import SMALL, Rig, open_rig

LIMITS = HarnessLimits(turns_max=8, shown_bytes_max=4000, exec=Limits(cpu_s=5.0, wall_s=50.0))
BLOCK = ModelRules(endpoint="test", model="m", speech="block")
TOOLS = ModelRules(endpoint="test", model="m", speech="tools")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("base")


@pytest.fixture
async def rig(tmp_path: Path, base: Path) -> AsyncIterator[Rig]:
    async with open_rig("bubblewrap", tmp_path, base) as opened:
        yield opened


@asynccontextmanager
async def brain(rules: ModelRules, *replies: Reply | Make) -> AsyncIterator[tuple[ChatServer, ChatBrain]]:
    async with chat_server(*replies) as server:
        endpoint = Endpoint("test", server.url, tries_max=2, pause_s=0.01, silence_s=5.0)
        async with ChatClient(endpoint) as client:
            yield server, ChatBrain(client, rules, seed=7, system="You are at a terminal.")


async def converse(rig: Rig, rules: ModelRules, *replies: Reply | Make) -> tuple[Episode, ChatServer, ChatBrain]:
    async with brain(rules, *replies) as (server, speaker):
        sandbox = await rig.start(limits=SMALL)
        try:
            (episode,) = await run_group(speaker, ["Do it."], [sandbox], LIMITS)
        finally:
            await sandbox.close()
        return episode, server, speaker


async def test_code_blocks_are_run_and_their_output_is_told(rig: Rig) -> None:
    episode, server, _ = await converse(rig, BLOCK, block("echo one > a"), block("cat a; false"), block("true"))

    assert [turn.command for turn in episode.turns[:2]] == ["echo one > a", "cat a; false"]
    second, third = server.requests[1]["messages"], server.requests[2]["messages"]
    assert [message["role"] for message in third] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert second[-1] == {"role": "user", "content": "(no output)"}
    assert third[-1]["content"].startswith("one\n")
    assert "tools" not in server.requests[0]
    assert episode.ended is EndReason.turns_max


async def test_tool_calls_are_run_and_answered_under_their_id(rig: Rig) -> None:
    two = streamed(
        [
            {
                "tool_calls": [
                    {"index": 0, "id": "c1", "function": {"name": "shell", "arguments": '{"command": "echo one"}'}},
                    {"index": 1, "id": "c2", "function": {"name": "shell", "arguments": '{"command": "echo two"}'}},
                ]
            }
        ],
        "stop",
    )
    episode, server, _ = await converse(rig, TOOLS, two, text("done", "length"))

    assert [turn.command for turn in episode.turns] == ["echo one"]
    assert server.requests[1]["messages"][-2:] == [
        {"role": "tool", "content": "one", "tool_call_id": "c1"},
        {"role": "tool", "content": "not run: one command a turn", "tool_call_id": "c2"},
    ]
    assert server.requests[0]["tools"][0]["function"]["name"] == "shell"
    assert episode.ended is EndReason.truncated_answer


@pytest.mark.parametrize(
    ("rules", "reply", "told"),
    [
        (TOOLS, text("I think about it."), "no command was given"),
        (TOOLS, call("x", name="python"), "there is no tool 'python'"),
        (TOOLS, call("x", arguments='{"command": "ls'), "the arguments are no JSON"),
        (TOOLS, call("x", arguments='["ls"]'), "the arguments need a text `command`"),
        (TOOLS, call("x", arguments='{"command": 5}'), "the arguments need a text `command`"),
        (TOOLS, whole({"content": ""}), "no command was given"),
        (BLOCK, text("no block here"), "no code block was found"),
        (BLOCK, text("```bash\nls\n```\nand\n```bash\npwd\n```"), "2 code blocks were found"),
        (BLOCK, text("```bash\n\n```"), "the code block is empty"),
    ],
)
async def test_an_answer_without_a_command_is_told_so_and_may_be_mended(
    rig: Rig, rules: ModelRules, reply: Reply, told: str
) -> None:
    good = block("echo good") if rules is BLOCK else call("echo good")
    episode, server, _ = await converse(rig, rules, reply, good, text("", "length"))

    assert told in server.requests[1]["messages"][-1]["content"]
    assert [(turn.command, turn.exit_code) for turn in episode.turns] == [("", 126), ("echo good", 0)]


async def test_answers_without_a_command_one_after_another_end_as_malformed(rig: Rig) -> None:
    episode, server, _ = await converse(rig, BLOCK, text("no"))

    assert episode.ended is EndReason.malformed
    assert len(server.requests) == PROBLEMS_MAX


@pytest.mark.parametrize(
    ("reply", "ended"),
    [
        (call("ls", finish="length"), EndReason.truncated_answer),
        (text("x", "content_filter"), EndReason.refused),
        (streamed([{"refusal": "I cannot help with that."}]), EndReason.refused),
        (refused(400, "context_length_exceeded"), EndReason.context_overflow),
    ],
)
async def test_an_answer_that_ends_the_conversation_says_how(rig: Rig, reply: Reply, ended: EndReason) -> None:
    episode, _, _ = await converse(rig, TOOLS, reply)

    assert episode.ended is ended
    assert episode.turns == ()


async def test_the_budget_of_tokens_bounds_each_answer_and_ends_the_episode(rig: Rig) -> None:
    rules = ModelRules(endpoint="test", model="m", speech="block", episode_tokens_max=260, answer_tokens_max=200)
    episode, server, speaker = await converse(rig, rules, block("echo x"))

    assert [request["max_tokens"] for request in server.requests] == [200, 150, 40]
    assert episode.ended is EndReason.over_budget
    assert speaker.spent == TokenUsage(prompt_tokens=300, cached_tokens=120, completion_tokens=30)


async def test_the_budget_of_money_counts_cached_tokens_at_their_price(rig: Rig) -> None:
    price = Price(prompt_usd=2.0, cached_usd=0.5, completion_usd=10.0)
    answer_usd = (60 * 2.0 + 40 * 0.5 + 10 * 10.0) / 1_000_000
    rules = ModelRules(
        endpoint="test",
        model="m",
        speech="block",
        price=price,
        episode_tokens_max=None,
        episode_usd_max=2.5 * answer_usd,
    )
    episode, server, speaker = await converse(rig, rules, block("echo x"))

    assert [request["max_tokens"] for request in server.requests] == [60, 36]
    assert episode.ended is EndReason.over_budget
    assert price.usd(speaker.spent) == pytest.approx(2 * answer_usd)


async def test_a_model_reaches_no_network(rig: Rig) -> None:
    program = 'import socket; socket.create_connection(("192.0.2.1", 80), 3)'
    episode, _, _ = await converse(rig, BLOCK, block(f"python3 -c '{program}' 2>&1 | tail -n 1"), text("", "length"))

    assert "Network is unreachable" in episode.turns[0].shown


async def test_tokens_are_one_conversation_where_each_prompt_begins_with_the_last(rig: Rig) -> None:
    def told(prompt: list[int], sampled: list[int], command: str) -> Make:
        logprobs = {"content": [{"logprob": -0.25} for _ in sampled]}
        choice = {"message": {"content": f"```bash\n{command}\n```"}, "finish_reason": "stop", "logprobs": logprobs}
        body = {"choices": [choice | {"token_ids": sampled}], "prompt_token_ids": prompt}
        return lambda _: Reply(body=json.dumps(body).encode())

    first = told([1, 2], [3, 4], "echo a")
    episode, _, _ = await converse(rig, BLOCK, first, told([1, 2, 3, 4, 9], [5], "echo b"), text("", "length"))
    assert episode.segments == ()  # the last answer has no ids

    async with brain(BLOCK, first, told([1, 2, 3, 4, 9], [5], "echo b")) as (_, speaker):
        await speaker.open(["x"])
        await speaker.speak([0])
        await speaker.speak([0])
        found = [(segment.kind, segment.token_ids) for segment in speaker.segments(0)]
    assert found == [("prompt", (1, 2)), ("sampled", (3, 4)), ("observed", (9,)), ("sampled", (5,))]

    async with brain(BLOCK, first, told([1, 2, 8, 9], [5], "echo b")) as (_, speaker):
        await speaker.open(["x"])
        await speaker.speak([0])
        await speaker.speak([0])
        assert speaker.segments(0) == ()


async def test_the_transcript_keeps_every_answer_whole(rig: Rig) -> None:
    episode, _, _ = await converse(rig, BLOCK, text("no block"), block("echo 1"), text("cut", "length"))

    content = decode_content(encode(episode)[0])

    assert isinstance(content.exchanges, tuple)
    assert [exchange.answer.finish for exchange in content.exchanges] == ["stop", "stop", "length"]
    assert content.exchanges[0].answer.text == "no block"
    assert content.exchanges[0].answer.usage.prompt_tokens == 100
