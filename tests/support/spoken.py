"""An engine that says what a script says, token by token: for tests that need to know the words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from services.kernel.models.protocol import Sampled
from services.kernel.models.template import Template

Line = str | bytes | tuple[int, ...] | None
"""A command line, raw sampled tokens that come to no end, or None: submit."""


@dataclass
class SpokenSession:
    template: Template
    rows: Sequence[Sequence[Line]]
    heard: list[list[list[int]]]
    active: list[bool] = field(default_factory=list)
    before: Callable[[int], None] = lambda turn: None

    def __post_init__(self) -> None:
        self.active = [True] * len(self.rows)

    def extend(self, rows: list[list[int]]) -> None:
        for number, row in enumerate(rows):
            self.active[number] = self.active[number] and bool(row)
            self.heard[number].append(row)

    def generate(self, turn: int) -> list[Sampled | None]:
        self.before(turn)
        return [self._say(row, turn) if active else None for row, active in zip(self.rows, self.active, strict=True)]

    def _say(self, row: Sequence[Line], turn: int) -> Sampled:
        line = row[turn] if turn < len(row) else None
        if isinstance(line, tuple):
            return Sampled(line, (0.0,) * len(line), finished=False)
        tokens = tuple(self.template.submit() if line is None else self.template.command(line))
        return Sampled(tokens, (0.0,) * len(tokens), finished=True)


@dataclass
class SpokenEngine:
    """Row by row, turn by turn. Behind the end of its script a row submits."""

    template: Template
    rows: Sequence[Sequence[Line]]
    checkpoint: str = "0" * 64
    deterministic: bool = True
    before: Callable[[int], None] = lambda turn: None
    """Called with the turn before anybody speaks."""
    heard: list[list[list[int]]] = field(default_factory=list)

    def open(
        self, prompts: list[list[int]], *, seed: int, temperature: float, new_tokens_max: int, context_max: int
    ) -> SpokenSession:
        assert len(prompts) == len(self.rows)
        self.heard = [[] for _ in prompts]
        return SpokenSession(self.template, self.rows, self.heard, before=self.before)
