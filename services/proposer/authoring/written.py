"""The arms without a terminal: an environment written as the text of an answer, with or without the gates' answer."""

from collections.abc import Sequence

from schemas.outcomes import GateOutcome
from schemas.parts import GateResult
from services.kernel.agent.conversation import EndReason, Episode, Measured, Turn
from services.kernel.agent.dialogue import Dialogue
from services.kernel.agent.harness import ENDS
from services.kernel.models.chat.message import ChatAnswer, ChatMessage
from services.proposer.authoring.answer import AnswerError, read_answer
from services.proposer.authoring.server import DETAIL_CHARACTERS_MAX, Check
from services.proposer.authoring.session import Session

AGAIN = "Write all files of the environment again, whole, in the form above."


async def write(dialogue: Dialogue, check: Check, *, retries: int) -> Session:
    """Asks until a draft passes its check, `retries` are used up, or the dialogue has no more answers.

    The last answer counts as it is, unchecked; with `retries` 0 that is the first.

    Raises:
        EndpointError, SessionFailedError: infrastructure.
    """
    prompt = dialogue.messages[-1].content
    told: list[str] = []
    ended, submitted = EndReason.malformed, None
    for left in range(retries, -1, -1):
        answer = await dialogue.ask()
        if not isinstance(answer, ChatAnswer):
            ended = ENDS[answer]
            break
        try:
            draft = read_answer(answer.text)
            said = _feedback(await check(draft)) if left else ""
        except AnswerError as error:
            said = f"No environment was found in your answer: {error}."
        else:
            if not said:
                ended, submitted = EndReason.submitted, draft
                break
        if left:
            told.append(said)
            dialogue.messages += _exchange(answer, f"{said}\n\n{AGAIN}")
    return Session(_episode(dialogue, prompt, told, ended), submitted, {})


def _feedback(results: Sequence[GateResult]) -> str:
    """What the gates say; empty where all have passed."""
    if all(result.outcome is GateOutcome.passed for result in results):
        return ""
    lines = []
    for result in results:
        detail = f": {result.detail[:DETAIL_CHARACTERS_MAX]}" if result.outcome is GateOutcome.failed else ""
        lines.append(f"- {result.gate}: {result.outcome.value}{detail}")
    return "\n".join(["The environment is not valid yet. Its gates say:", *lines])


def _exchange(answer: ChatAnswer, reply: str) -> list[ChatMessage]:
    return [ChatMessage(role="assistant", content=answer.text), ChatMessage(role="user", content=reply)]


def _episode(dialogue: Dialogue, prompt: str, told: Sequence[str], ended: EndReason) -> Episode:
    """What the host told the model stands as turns without a command."""
    unmeasured = Measured(output=b"", output_bytes=0, cpu_s=0.0, wall_s=0.0)
    return Episode(
        instruction=prompt,
        turns=tuple(Turn(command="", shown=each, exit_code=1) for each in told),
        measured=(unmeasured,) * len(told),
        segments=(),
        exchanges=tuple(dialogue.exchanges),
        ended=ended,
    )
