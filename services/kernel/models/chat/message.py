"""What is sent to a chat endpoint and what comes back, without the wire's detail."""

from typing import Any, Literal

import msgspec


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call as the model wrote it: `arguments` is text that need not be JSON."""

    id: str
    name: str
    arguments: str


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None

    def wire(self) -> dict[str, Any]:
        body: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            body["content"] = self.content or None
            body["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        if self.tool_call_id is not None:
            body["tool_call_id"] = self.tool_call_id
        return body


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Tokens of one answer. `cached_tokens` are part of `prompt_tokens`."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False
    """The endpoint told no usage: these are a quarter of the bytes, rounded up."""

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            estimated=self.estimated or other.estimated,
        )

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One question. `tools` are OpenAI function declarations."""

    model: str
    messages: tuple[ChatMessage, ...]
    answer_tokens_max: int
    tools: tuple[dict[str, Any], ...] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    token_ids: bool = False
    """Ask for token ids and log-probabilities, as vLLM gives them."""
    extra: dict[str, Any] = {}
    """Further keys of the request body, as the endpoint knows them."""

    def wire(self, *, stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [message.wire() for message in self.messages],
            "max_tokens": self.answer_tokens_max,
            "temperature": self.temperature,
            "top_p": self.top_p,
        }
        if self.tools:
            body |= {"tools": list(self.tools), "tool_choice": "auto"}
        if self.seed is not None:
            body["seed"] = self.seed
        if self.token_ids:
            body |= {"logprobs": True, "return_token_ids": True}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body | self.extra


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One answer, as it came."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    refusal: str = ""
    finish: str = ""
    """As the endpoint says it: `stop`, `tool_calls`, `length`, `content_filter`, or a word of its own."""
    usage: TokenUsage = TokenUsage()
    model: str = ""
    """The model that the endpoint says has answered."""
    prompt_token_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    """One for each of `token_ids`; empty where the endpoint gives none."""
