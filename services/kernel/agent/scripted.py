"""Speakers that are programs: a Python generator yields command lines and receives what the terminal answers."""

from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias

from services.kernel.agent.conversation import Exchange, Observation, Utterance
from services.kernel.models.trajectory import Segment

Script: TypeAlias = Generator[str, Observation, None]


class ScriptedBrain:
    """Gives each conversation a generator made from its instruction. Its end is the submission."""

    def __init__(self, make: Callable[[str], Script]) -> None:
        self._make = make
        self._scripts: list[Script] = []
        self._heard: dict[int, Observation] = {}

    async def open(self, instructions: Sequence[str]) -> None:
        self._scripts = [self._make(instruction) for instruction in instructions]

    async def speak(self, rows: Sequence[int]) -> list[Utterance]:
        return [self._next(row) for row in rows]

    async def hear(self, row: int, observation: Observation) -> None:
        self._heard[row] = observation

    def segments(self, row: int) -> tuple[Segment, ...]:
        return ()

    def exchanges(self, row: int) -> tuple[Exchange, ...]:
        return ()

    def _next(self, row: int) -> Utterance:
        script, heard = self._scripts[row], self._heard.pop(row, None)
        try:
            return Utterance(command=next(script) if heard is None else script.send(heard))
        except StopIteration:
            return Utterance()
