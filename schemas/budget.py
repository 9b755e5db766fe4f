"""What a run may spend, and how far the bodies of its log have come towards it. Pure, and the same for every decider.

Evaluations on held-out sets are not counted: they measure a run, and the proposer's decider may not see them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.costs import usd_of
from schemas.identity import event_id
from schemas.messages import (
    EnvAbandoned,
    EnvProposed,
    EnvRequested,
    Message,
    RolloutCompleted,
    RolloutRequested,
    RoundPlanned,
    RunStarted,
    WorkFailed,
)
from schemas.outcomes import Nature, Purpose
from schemas.parked import infra_answers
from schemas.parts import RosterEntry, Usage


@dataclass
class BudgetBook:
    """Feed it every body once, in order. Without bounds in the settings nothing is ever spent."""

    tokens_max: int | None = None
    usd_max: float | None = None
    tokens: int = 0
    usd: float = 0.0
    payees: dict[str, RosterEntry | None] = field(default_factory=dict)
    """Who is paid for the tries of a work message, by its id."""

    @property
    def spent(self) -> bool:
        tokens_spent = self.tokens_max is not None and self.tokens >= self.tokens_max
        return tokens_spent or (self.usd_max is not None and self.usd >= self.usd_max)

    def fold(self, id_: str, body: Message) -> None:
        match body:
            case RunStarted():
                self.tokens_max, self.usd_max = body.science.budget_tokens, body.science.budget_usd
            case EnvRequested():
                self.payees[id_] = body.entry
            case RolloutRequested() if body.purpose is not Purpose.evaluate:
                self.payees[id_] = None
            case WorkFailed() if body.work_id in self.payees and isinstance(body.usage, Usage):
                self._add(body.usage, self.payees[body.work_id])
            case EnvProposed() | EnvAbandoned():
                self._add(body.usage, body.entry)
            case RolloutCompleted() if body.purpose is not Purpose.evaluate:
                self._add(body.usage, None)
            case _:
                pass

    def allowed(self, said: Iterable[Message]) -> list[Message]:
        """Without what would cost more, once the budget is spent; facts and the decisions that end things stay."""
        if not self.spent:
            return list(said)
        return [m for m in said if m.nature is not Nature.request and not isinstance(m, RoundPlanned)]

    def _add(self, usage: Usage, payee: RosterEntry | None) -> None:
        self.tokens += usage.prompt_tokens + usage.completion_tokens
        self.usd += usd_of(usage, payee)


@dataclass
class InFlight:
    """What was asked for and has no answer yet, and what its owner has said and not read back yet."""

    answers: dict[str, str] = field(default_factory=dict)
    """Work by the id of each answer that it waits for."""
    waiting: dict[str, int] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)

    @property
    def nothing(self) -> bool:
        return not self.waiting and not self.said

    def fold(self, id_: str, body: Message) -> None:
        self.said.discard(id_)
        work_id = self.answers.pop(id_, None)
        if work_id is not None and work_id in self.waiting:
            self.waiting[work_id] -= 1
            if self.waiting[work_id] <= 0:
                del self.waiting[work_id]
        due = [answer.id for answer in infra_answers(body)]
        if due:
            self.waiting[id_] = len(due)
            self.answers |= dict.fromkeys(due, id_)
        if isinstance(body, EnvRequested):
            self.answers[event_id(EnvProposed.name, body.key())] = id_

    def say(self, messages: Iterable[Message]) -> None:
        self.said.update(message.id for message in messages)
