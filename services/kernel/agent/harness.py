"""The terminal harness: brains that speak command lines, sandboxes that answer, counted limits that decide the end.

Every command runs by itself under `bash -c` in the image's working directory: files and background processes last,
`cd` and variables do not. Conversations of a group go in lockstep, and the commands of one turn run side by side.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from services.kernel.agent.conversation import (
    Brain,
    Cut,
    EndReason,
    Episode,
    HarnessLimits,
    Measured,
    Observation,
    Turn,
    Utterance,
)
from services.kernel.agent.normaliser import NORMALISERS, Show
from services.kernel.sandbox.protocol import Ended, ExecResult, Sandbox, SandboxError

ENDS: Mapping[Cut, EndReason] = {
    "answer": EndReason.truncated_answer,
    "context": EndReason.context_overflow,
    "budget": EndReason.over_budget,
    "malformed": EndReason.malformed,
    "refused": EndReason.refused,
}
CPU_S_MIN = 0.1
"""What a command may use at least, however little is left of the conversation's CPU seconds."""


async def run_group(
    brain: Brain,
    instructions: Sequence[str],
    sandboxes: Sequence[Sandbox],
    limits: HarnessLimits,
    *,
    normaliser: str = "v1",
    user: str | None = None,
    over: Callable[[], bool] = lambda: False,
) -> list[Episode]:
    """Runs one conversation for each instruction in the sandbox at the same place; the sandboxes are left open.

    `over` is asked after each turn: where it is true, all conversations end as `submitted`, without a goodbye.
    A sandbox that fails ends its own conversation only, as `infra_failed`.

    Raises:
        KeyError: an unknown normaliser.
        Exception: whatever the brain raises; no conversation has an end then.
    """
    show = NORMALISERS[normaliser]
    rows = [
        _Row(instruction, sandbox, limits, show, user)
        for instruction, sandbox in zip(instructions, sandboxes, strict=True)
    ]
    await brain.open(instructions)
    active = list(range(len(rows)))
    for _ in range(limits.turns_max):
        if not active:
            break
        said = await brain.speak(tuple(active))
        async with asyncio.TaskGroup() as group:
            answers = [
                group.create_task(rows[row].answer(utterance)) for row, utterance in zip(active, said, strict=True)
            ]
        for row, answer in zip(active, answers, strict=True):
            observation = answer.result()
            if observation is not None:
                await brain.hear(row, observation)
        for row in active if over() else ():
            rows[row].submit()
        active = [row for row in active if rows[row].ended is None]
    return [row.episode(brain, number) for number, row in enumerate(rows)]


class _Row:
    """One conversation under way."""

    def __init__(self, instruction: str, sandbox: Sandbox, limits: HarnessLimits, show: Show, user: str | None) -> None:
        self.ended: EndReason | None = None
        self._failure = ""
        self._instruction = instruction
        self._sandbox = sandbox
        self._limits = limits
        self._show = show
        self._user = user
        self._turns: list[Turn] = []
        self._measured: list[Measured] = []

    async def answer(self, said: Utterance) -> Observation | None:
        """Runs what was said and gives what the speaker hears; None where the conversation has ended."""
        if said.cut is not None:
            self.ended = ENDS[said.cut]
        elif said.problem:
            return self._record("", _refusal(f"{said.problem}\n"))
        elif said.command is None:
            self.ended = EndReason.submitted
        else:
            return await self._run(_runnable(said.command))
        return None

    def submit(self) -> None:
        """Its end, unless it has another one already."""
        self.ended = self.ended or EndReason.submitted

    def episode(self, brain: Brain, number: int) -> Episode:
        return Episode(
            instruction=self._instruction,
            turns=tuple(self._turns),
            measured=tuple(self._measured),
            segments=brain.segments(number),
            exchanges=brain.exchanges(number),
            ended=self.ended or EndReason.turns_max,
            failure=self._failure,
        )

    async def _run(self, command: str) -> Observation | None:
        size, most = len(command.encode()), self._limits.command_bytes_max
        if size > most:
            return self._record(command, _refusal(f"the command has {size} bytes, {most} are allowed\n"))
        spent_s = sum(each.cpu_s for each in self._measured)
        limits = replace(self._limits.exec, cpu_s=max(CPU_S_MIN, self._limits.exec.cpu_s - spent_s))
        try:
            result = await self._sandbox.exec(command, user=self._user, limits=limits)
        except SandboxError as error:
            self._fail(str(error))
            return None
        if result.ended is Ended.wall_limit and not result.idle:
            self._fail(f"a busy command met the wall limit of {limits.wall_s} s: this machine is too slow")
            return None
        observation = self._record(command, result)
        ending = {Ended.cpu_limit: EndReason.cpu_limit, Ended.wall_limit: EndReason.hung}
        self.ended = ending.get(result.ended)
        return None if self.ended else observation

    def _fail(self, reason: str) -> None:
        self.ended = EndReason.infra_failed
        self._failure = reason

    def _record(self, command: str, result: ExecResult) -> Observation:
        shown = self._show(
            result.output,
            result.exit_code,
            self._limits.shown_bytes_max,
            bytes_lost=result.output_bytes - len(result.output),
            stopped="" if result.ended is Ended.exited else result.ended.value,
        )
        self._turns.append(Turn(command=command, shown=shown, exit_code=result.exit_code, ended=result.ended))
        self._measured.append(
            Measured(output=result.output, output_bytes=result.output_bytes, cpu_s=result.cpu_s, wall_s=result.wall_s)
        )
        return Observation(shown, result.exit_code)


def _runnable(command: str) -> str:
    """A shell takes neither NUL nor half a surrogate pair; both become U+FFFD, and are recorded so."""
    return command.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _refusal(text: str) -> ExecResult:
    said = text.encode()
    return ExecResult(exit_code=126, output=said, output_bytes=len(said))
