"""Reads answers of the chat protocol, whole or in pieces, strictly: a server may send anything."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from services.kernel.models.chat.errors import AnswerUnreadableError
from services.kernel.models.chat.message import ChatAnswer, TokenUsage, ToolCall

TOOL_CALLS_MAX = 64
TOKEN_ID_MAX = 2**31 - 1


@dataclass
class _Call:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass
class Assembly:
    """An answer under way: pieces of a stream, or one whole body."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    calls: dict[int, _Call] = field(default_factory=dict)
    finish: str = ""
    usage: TokenUsage | None = None
    model: str = ""
    prompt_token_ids: tuple[int, ...] = ()
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    bytes_seen: int = 0

    def take(self, body: Any) -> None:
        """One body: `delta` of a stream, or `message` of a whole answer. Raises AnswerUnreadableError."""
        table = _table(body, "the answer")
        self.model = _text(table, "model") or self.model
        if isinstance(table.get("usage"), dict):
            self.usage = _usage(table["usage"])
        if table.get("prompt_token_ids"):
            self.prompt_token_ids = _token_ids(table["prompt_token_ids"])
        choices = table.get("choices")
        if not isinstance(choices, list):
            raise AnswerUnreadableError("the answer has no list of choices")
        for choice in choices[:1]:
            self._choice(_table(choice, "a choice"))

    def answer(self, *, prompt_bytes: int) -> ChatAnswer:
        """The whole answer. `prompt_bytes` is for an endpoint that tells no usage."""
        calls = [self.calls[index] for index in sorted(self.calls)]
        text = "".join(self.text)
        shown = len(text.encode()) + sum(len(part.encode()) for call in calls for part in call.arguments)
        counted = self.usage or TokenUsage(
            prompt_tokens=-(-prompt_bytes // 4), completion_tokens=len(self.token_ids) or -(-shown // 4), estimated=True
        )
        return ChatAnswer(
            text=text,
            reasoning="".join(self.reasoning),
            tool_calls=tuple(ToolCall(id=call.id, name=call.name, arguments="".join(call.arguments)) for call in calls),
            refusal="".join(self.refusal),
            finish=self.finish,
            usage=counted,
            model=self.model,
            prompt_token_ids=self.prompt_token_ids,
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs) if len(self.logprobs) == len(self.token_ids) else (),
        )

    def _choice(self, choice: Mapping[str, Any]) -> None:
        part = _table(choice.get("delta") or choice.get("message") or {}, "a message")
        self.text.append(_text(part, "content"))
        self.reasoning.append(_text(part, "reasoning_content") or _text(part, "reasoning"))
        self.refusal.append(_text(part, "refusal"))
        self.finish = _text(choice, "finish_reason") or self.finish
        for place, call in enumerate(_rows(part, "tool_calls")):
            self._call(place, call)
        if choice.get("prompt_token_ids"):
            self.prompt_token_ids = _token_ids(choice["prompt_token_ids"])
        if choice.get("token_ids"):
            self.token_ids += _token_ids(choice["token_ids"])
        for row in _rows(choice.get("logprobs") or {}, "content"):
            value = row.get("logprob")
            if not isinstance(value, int | float):
                raise AnswerUnreadableError("a log-probability is no number")
            self.logprobs.append(float(value))

    def _call(self, place: int, call: Mapping[str, Any]) -> None:
        index = call.get("index", place)
        if not isinstance(index, int) or not 0 <= index < TOOL_CALLS_MAX:
            raise AnswerUnreadableError(f"a tool call has the index {index!r}")
        found = self.calls.setdefault(index, _Call())
        function = _table(call.get("function") or {}, "a tool call")
        found.id = _text(call, "id") or found.id
        found.name = _text(function, "name") or found.name
        found.arguments.append(_text(function, "arguments"))


def _table(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise AnswerUnreadableError(f"{what} is no JSON object")
    return value


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise AnswerUnreadableError(f"{key!r} is no text")
    return value


def _rows(table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    rows = table.get(key) or []
    if not isinstance(rows, list):
        raise AnswerUnreadableError(f"{key!r} is no list")
    return [_table(row, f"an entry of {key!r}") for row in rows]


def _token_ids(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(each) is int and 0 <= each <= TOKEN_ID_MAX for each in value):
        raise AnswerUnreadableError("token ids are no list of numbers")
    return tuple(value)


def _usage(table: Mapping[str, Any]) -> TokenUsage:
    details = table.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    counts = [table.get("prompt_tokens"), cached, table.get("completion_tokens")]
    if any(count is not None and (type(count) is not int or count < 0) for count in counts):
        raise AnswerUnreadableError("usage is no count of tokens")
    prompt, cached_tokens, completion = (count or 0 for count in counts)
    return TokenUsage(prompt_tokens=prompt, cached_tokens=cached_tokens, completion_tokens=completion)
