"""Attempts of other agents, as ATIF or mini-swe-agent write them, brought into one bounded form."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from services.cli.outcome import CliError
from services.kernel.agent.normaliser import clip, normalise_v1

FILE_BYTES_MAX = 32 * 2**20
FILES_MAX = 8
"""Of one environment: an assignment names them all."""
STEPS_MAX = 120
"""Head and tail stay."""
TEXT_BYTES_MAX = 2048
CALLS_MAX = 16
"""Of one step."""

Text = str | list[dict[str, Any]] | None
"""Plain, or parts of which those of the type `text` are taken."""


class Told(msgspec.Struct, frozen=True):
    """One step: what was said by whom, which tools were called with what, and what came back."""

    source: str
    message: str
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _Call(_Strict, frozen=True):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: dict[str, Any] | None = None


class _Result(_Strict, frozen=True):
    source_call_id: str | None = None
    content: Text = None
    subagent_trajectory_ref: list[dict[str, Any]] | None = None
    extra: dict[str, Any] | None = None


class _Observation(_Strict, frozen=True):
    results: list[_Result]


class _Step(_Strict, frozen=True):
    step_id: Annotated[int, msgspec.Meta(ge=1)]
    source: Literal["system", "user", "agent"]
    message: str | list[dict[str, Any]]
    timestamp: str | None = None
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None
    metrics: dict[str, Any] | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = None
    extra: dict[str, Any] | None = None


class _Agent(_Strict, frozen=True):
    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    extra: dict[str, Any] | None = None


class _Atif(_Strict, frozen=True):
    """ATIF 1.0 to 1.8, which allow no other fields."""

    schema_version: Annotated[str, msgspec.Meta(pattern=r"^ATIF-v1\.[0-8]$")]
    agent: _Agent
    steps: Annotated[list[_Step], msgspec.Meta(min_length=1)]
    session_id: str | None = None
    trajectory_id: str | None = None
    notes: str | None = None
    final_metrics: dict[str, Any] | None = None
    continued_trajectory_ref: str | None = None
    extra: dict[str, Any] | None = None
    subagent_trajectories: list[dict[str, Any]] | None = None


class _Function(msgspec.Struct, frozen=True):
    name: str
    arguments: str = ""


class _MiniCall(msgspec.Struct, frozen=True):
    function: _Function


class _Message(msgspec.Struct, frozen=True):
    """Its writers add what they like to a message, so other fields are passed over."""

    role: Literal["system", "user", "assistant", "tool", "exit"]
    content: Text = None
    tool_calls: list[_MiniCall] | None = None


class _Mini(msgspec.Struct, frozen=True):
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    trajectory_format: Annotated[str, msgspec.Meta(pattern=r"^mini-swe-agent-1(\.\d+)?$")]
    info: dict[str, Any] = {}


def read_trajectories(place: Path) -> list[bytes]:
    """A file, or the `*.json` directly in a folder, by name. Raises CliError for what is in neither form."""
    files = sorted(place.glob("*.json")) if place.is_dir() else [place]
    if not 0 < len(files) <= FILES_MAX:
        raise CliError(f"{place}: {len(files)} trajectories (*.json); give 1 to {FILES_MAX}")
    return [read_trajectory(_content(file), str(file)) for file in files]


def read_trajectory(content: bytes, where: str) -> bytes:
    """JSON text of at most STEPS_MAX steps. Raises CliError that says what is wrong."""
    try:
        kind = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CliError(f"{where}: no JSON: {error}") from error
    is_mini = isinstance(kind, dict) and "trajectory_format" in kind
    try:
        if is_mini:
            mini = msgspec.json.decode(content, type=_Mini)
            return _written(mini.trajectory_format, "mini-swe-agent", list(_from_mini(mini)))
        atif = msgspec.json.decode(content, type=_Atif)
        return _written(atif.schema_version, atif.agent.name, list(_from_atif(atif, where)))
    except msgspec.ValidationError as error:
        raise CliError(f"{where}: no {'mini-swe-agent' if is_mini else 'ATIF'} trajectory: {error}") from error


def _from_atif(atif: _Atif, where: str) -> Iterator[Told]:
    for number, step in enumerate(atif.steps, start=1):
        calls = step.tool_calls or []
        results = step.observation.results if step.observation else []
        if step.step_id != number:
            raise CliError(f"{where}: step {number} has step_id {step.step_id}")
        if step.source != "agent" and calls:
            raise CliError(f"{where}: step {number}: only an agent calls tools")
        known = {call.tool_call_id for call in calls}
        if any(result.source_call_id not in known for result in results if result.source_call_id is not None):
            raise CliError(f"{where}: step {number} has a result of a call that it did not make")
        told = [f"{call.function_name} {msgspec.json.encode(call.arguments).decode()}" for call in calls]
        yield Told(step.source, _text(step.message), _short(told), _short([_text(each.content) for each in results]))


def _from_mini(mini: _Mini) -> Iterator[Told]:
    """What a tool, or the user after an answer, says is what came back from the command."""
    answered = False
    for message in mini.messages:
        text = _text(message.content)
        if message.role == "assistant":
            answered = True
            calls = [f"{call.function.name} {call.function.arguments}" for call in message.tool_calls or []]
            yield Told("agent", text, _short(calls))
        elif message.role == "tool" or (message.role == "user" and answered):
            yield Told("environment", "", results=(text,))
        else:
            yield Told(message.role, text)


def _written(form: str, agent: str, steps: list[Told]) -> bytes:
    left_out = max(0, len(steps) - STEPS_MAX)
    if left_out:
        steps = steps[: STEPS_MAX // 2] + steps[-STEPS_MAX // 2 :]
    told = {"format": form, "agent": clip(agent, 256), "steps_left_out": left_out, "steps": steps}
    return msgspec.json.format(msgspec.json.encode(told), indent=1)


def _text(content: Text) -> str:
    if not isinstance(content, str):
        parts = (part.get("text") for part in content or [] if part.get("type") == "text")
        content = "\n".join(part for part in parts if isinstance(part, str))
    return clip(normalise_v1(content.encode("utf-8", "replace")), TEXT_BYTES_MAX)


def _short(texts: list[str]) -> tuple[str, ...]:
    return tuple(_text(text) for text in texts[:CALLS_MAX])


def _content(file: Path) -> bytes:
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise CliError(f"{file}: more than {FILE_BYTES_MAX} bytes")
        return file.read_bytes()
    except OSError as error:
        raise CliError(f"{file}: {error.strerror}") from error
