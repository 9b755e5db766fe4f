"""The chat client against a scripted server: good answers, bad ones, and what is tried again."""

import json
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from services.kernel.models.chat.client import ChatClient
from services.kernel.models.chat.endpoint import Endpoint, Secret
from services.kernel.models.chat.errors import (
    AnswerUnreadableError,
    ContextOverflowError,
    EndpointError,
    EndpointRefusedError,
    EndpointUnavailableError,
)
from services.kernel.models.chat.message import ChatAnswer, ChatMessage, ChatRequest, TokenUsage, ToolCall
from tests.support.chat_server import ChatServer, Make, Reply, call, chat_server, refused, streamed, text, whole

KEY = "sk-a-key-that-nobody-may-see"
ASKED = ChatRequest(model="m", messages=(ChatMessage(role="user", content="hello"),), answer_tokens_max=100)


@asynccontextmanager
async def asking(
    *replies: Reply | Make, stream: bool = True, **more: Any
) -> AsyncIterator[tuple[ChatServer, ChatClient]]:
    async with chat_server(*replies) as server:
        usual = Endpoint("test", server.url, Secret(KEY), stream=stream, tries_max=3, pause_s=0.01, silence_s=5.0)
        endpoint = replace(usual, **more)
        async with ChatClient(endpoint) as client:
            yield server, client


async def answer(*replies: Reply | Make, stream: bool = True, **more: Any) -> ChatAnswer:
    async with asking(*replies, stream=stream, **more) as (_, client):
        return await client.ask(ASKED)


async def failure(*replies: Reply | Make, **more: Any) -> tuple[EndpointError, int]:
    """The error, and how often the server was asked."""
    async with asking(*replies, **more) as (server, client):
        with pytest.raises(EndpointError) as caught:
            await client.ask(ASKED)
        return caught.value, len(server.requests)


async def test_a_stream_and_a_whole_body_give_the_same_answer() -> None:
    usage = TokenUsage(prompt_tokens=100, cached_tokens=40, completion_tokens=10)
    expected = ChatAnswer(text="hello there", finish="stop", usage=usage, model="scripted")

    assert await answer(text("hello there")) == expected
    assert await answer(whole({"content": "hello there"}), stream=False) == expected
    assert await answer(whole({"content": "hello there"}), stream=True) == expected


async def test_a_tool_call_is_put_together_from_its_pieces() -> None:
    found = await answer(call("ls -l"))

    assert found.tool_calls == (ToolCall(id="call-1", name="shell", arguments='{"command": "ls -l"}'),)
    assert found.finish == "tool_calls"


async def test_token_ids_and_log_probabilities_are_kept_where_there_is_one_for_each() -> None:
    choice = {
        "index": 0,
        "message": {"content": "hi"},
        "finish_reason": "stop",
        "token_ids": [5, 6],
        "logprobs": {"content": [{"logprob": -0.5}, {"logprob": -1.25}]},
    }
    body = {"choices": [choice], "prompt_token_ids": [1, 2, 3]}

    found = await answer(lambda _: Reply(body=json.dumps(body).encode()))

    assert (found.prompt_token_ids, found.token_ids, found.logprobs) == ((1, 2, 3), (5, 6), (-0.5, -1.25))
    assert found.usage.estimated
    assert found.usage.completion_tokens == 2


async def test_the_request_says_what_was_asked_and_carries_the_key() -> None:
    asked = ChatRequest(
        model="m",
        messages=(ChatMessage(role="user", content="x"),),
        answer_tokens_max=7,
        temperature=0.25,
        seed=3,
        token_ids=True,
        extra={"top_k": 5},
    )
    async with asking(text("x")) as (server, client):
        await client.ask(asked)

    assert server.requests == [
        {
            "model": "m",
            "messages": [{"role": "user", "content": "x"}],
            "max_tokens": 7,
            "temperature": 0.25,
            "top_p": 1.0,
            "seed": 3,
            "logprobs": True,
            "return_token_ids": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "top_k": 5,
        }
    ]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "bad",
    [
        refused(429, "slow down", **{"retry-after": "0"}),
        refused(500, "broken"),
        refused(503, "starting"),
        Reply(body=b"{", content_type="application/json"),
        Reply(body=b"[]"),
        Reply(body=b'{"choices": {}}'),
        Reply(body=b'{"choices": [{"message": {"content": 5}}]}'),
        whole({"content": "no finish"}, finish=None),
        Reply(body=b'data: {"choices": [\n\n', content_type="text/event-stream"),
        Reply(body=b'data: {"error": {"message": "worker died"}}\n\n', content_type="text/event-stream"),
        streamed([{"content": "cut"}], finish=None),
        Reply(body=b"x" * 100, cut=True),
    ],
    ids=[
        "429",
        "500",
        "503",
        "cut-json",
        "list",
        "no-choices",
        "no-text",
        "no-finish",
        "cut-event",
        "error-event",
        "unfinished",
        "hung-up",
    ],
)
async def test_what_may_be_better_the_next_time_is_tried_again(bad: Reply) -> None:
    assert (await answer(bad, bad, text("good"))).text == "good"
    error, times = await failure(bad)
    assert isinstance(error, EndpointUnavailableError | AnswerUnreadableError)
    assert error.retry
    assert times == 3


async def test_silence_is_tried_again_and_names_the_endpoint() -> None:
    error, times = await failure(Reply(body=b"{}", stall_s=30.0), silence_s=0.2)

    assert isinstance(error, EndpointUnavailableError)
    assert "silent for 0.2 s" in str(error)
    assert times == 3


async def test_nobody_listening_is_unavailable() -> None:
    async with chat_server(text("x")) as server:
        gone = Endpoint("gone", server.url, tries_max=2, pause_s=0.01)
    async with ChatClient(gone) as client:
        with pytest.raises(EndpointUnavailableError, match="endpoint 'gone'"):
            await client.ask(ASKED)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 301])
async def test_what_stays_wrong_is_asked_once(status: int) -> None:
    error, times = await failure(refused(status, "no such model"))

    assert type(error) is EndpointRefusedError
    assert f"HTTP {status}" in str(error)
    assert times == 1


async def test_a_conversation_that_is_too_long_is_told_from_other_refusals() -> None:
    said = "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens."
    error, times = await failure(refused(400, said))

    assert isinstance(error, ContextOverflowError)
    assert times == 1


async def test_no_error_holds_the_key() -> None:
    for reply in (refused(401, f"wrong key {KEY}"), refused(500, f"{KEY}" * 3), Reply(body=KEY.encode())):
        error, _ = await failure(reply)
        told = "".join(traceback.format_exception(error))
        assert KEY not in told
    assert KEY not in repr(Endpoint("test", "http://127.0.0.1/v1", Secret(KEY)))


async def test_an_answer_that_does_not_end_is_cut_and_counts_as_cut() -> None:
    endless = streamed([{"content": "y" * 1000}] * 200, finish="stop")

    found = await answer(endless, answer_bytes_max=20_000)

    assert found.finish == "length"
    assert 0 < len(found.text) <= 20_000
    assert found.usage.estimated


async def test_a_whole_body_that_is_too_large_is_not_taken() -> None:
    error, _ = await failure(whole({"content": "y" * 50_000}), answer_bytes_max=20_000)
    assert isinstance(error, AnswerUnreadableError)


async def test_tokens_of_answers_that_could_not_be_used_are_counted() -> None:
    async with asking(streamed([{"content": "abcdefgh"}], finish=None), text("good")) as (_, client):
        await client.ask(ASKED)

    assert client.wasted == TokenUsage(prompt_tokens=100, cached_tokens=40, completion_tokens=10)
