"""How a chat model says a command: as a call of the one tool, or as the one code block of its answer."""

import json
import re
from typing import Any, Literal, Protocol, TypeAlias

from services.kernel.agent.conversation import Utterance
from services.kernel.models.chat.message import ChatAnswer, ChatMessage

SpeechName: TypeAlias = Literal["tools", "block"]

TOOL_NAME = "shell"
SHELL_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": TOOL_NAME,
        "description": "Run one command line under bash and see what it prints. Files stay; `cd` and variables do not.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The command line."}},
            "required": ["command"],
        },
    },
}
_BLOCK = re.compile(r"^```[ \t]*(?:bash|sh|shell|console)?[ \t]*\r?\n(.*?)^```[ \t]*\r?$", re.DOTALL | re.MULTILINE)


class Speech(Protocol):
    """Both directions of one way to speak. Stateless."""

    @property
    def tools(self) -> tuple[dict[str, Any], ...]: ...

    @property
    def rule(self) -> str:
        """What a model is told about it before anything else."""
        ...

    def read(self, answer: ChatAnswer) -> Utterance:
        """The command of a whole answer, or what is wrong with it."""
        ...

    def assistant(self, answer: ChatAnswer) -> ChatMessage: ...

    def reply(self, answer: ChatAnswer, text: str) -> list[ChatMessage]:
        """What the terminal says to it."""
        ...


class ToolSpeech:
    """Function calling: one call of `shell` a turn; further calls of one answer are told that they were not run."""

    tools = (SHELL_TOOL,)
    rule = f"You work through the tool `{TOOL_NAME}`. Each of your answers must call it exactly once."

    def read(self, answer: ChatAnswer) -> Utterance:
        if not answer.tool_calls:
            return Utterance(problem=f"no command was given: call the tool `{TOOL_NAME}` once in each answer")
        call = answer.tool_calls[0]
        if call.name != TOOL_NAME:
            return Utterance(problem=f"there is no tool {call.name[:60]!r}: the only one is `{TOOL_NAME}`")
        try:
            arguments = json.loads(call.arguments)
        except (ValueError, RecursionError):
            return Utterance(problem='the arguments are no JSON: write {"command": "…"}')
        command = arguments.get("command") if isinstance(arguments, dict) else None
        if not isinstance(command, str) or not command.strip():
            return Utterance(problem='the arguments need a text `command`: write {"command": "…"}')
        return Utterance(command=command)

    def assistant(self, answer: ChatAnswer) -> ChatMessage:
        return ChatMessage(role="assistant", content=answer.text, tool_calls=answer.tool_calls)

    def reply(self, answer: ChatAnswer, text: str) -> list[ChatMessage]:
        if not answer.tool_calls:
            return [ChatMessage(role="user", content=text)]
        first, *others = answer.tool_calls
        replies = [ChatMessage(role="tool", content=text, tool_call_id=first.id)]
        for call in others:
            replies.append(ChatMessage(role="tool", content="not run: one command a turn", tool_call_id=call.id))
        return replies


class BlockSpeech:
    """Plain text: exactly one fenced block a turn, which is run as it stands."""

    tools: tuple[dict[str, Any], ...] = ()
    rule = "You work through a shell. Each of your answers must hold exactly one ```bash code block with what to run."

    def read(self, answer: ChatAnswer) -> Utterance:
        blocks = _BLOCK.findall(answer.text + "\n")
        if len(blocks) != 1:
            found = "no code block was" if not blocks else f"{len(blocks)} code blocks were"
            return Utterance(problem=f"{found} found: each answer must hold exactly one ```bash code block")
        if not blocks[0].strip():
            return Utterance(problem="the code block is empty")
        return Utterance(command=blocks[0].rstrip("\r\n"))

    def assistant(self, answer: ChatAnswer) -> ChatMessage:
        return ChatMessage(role="assistant", content=answer.text)

    def reply(self, answer: ChatAnswer, text: str) -> list[ChatMessage]:
        return [ChatMessage(role="user", content=text)]


SPEECHES: dict[SpeechName, Speech] = {"tools": ToolSpeech(), "block": BlockSpeech()}
