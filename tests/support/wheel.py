"""The whole wheel in one thread over a list: four deciders and scripted workers in a seeded order of steps."""

import random
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from schemas.codec import decode, encode
from schemas.envelope import Event, Meta
from schemas.messages import Message, RosterChanged, RunStarted
from schemas.outcomes import Role
from schemas.parts import HeldOutSet, RosterEntry
from schemas.science import (
    CalibrationRules,
    EvaluationRules,
    PoolRules,
    ProposalRules,
    Science,
    TrainingRules,
)
from schemas.subjects import parse_subject, subject_of
from schemas.topology import DECIDERS, EDGES
from services.proposer import policy as proposer_policy
from services.solver import policy as solver_policy
from services.trainer import policy as trainer_policy
from services.validator import policy as validator_policy
from tests.support.script import Script, fake_digest

POLICIES: dict[Role, ModuleType] = {
    Role.proposer: proposer_policy,
    Role.validator: validator_policy,
    Role.solver: solver_policy,
    Role.trainer: trainer_policy,
}
RUN = "test"


def small_science(**changes: Any) -> Science:
    """Three short rounds in which every kind of message occurs."""
    settings: dict[str, Any] = {
        "profile": "test",
        "rounds": 3,
        "domains": ("files", "text", "logs"),
        "proposal": ProposalRules(open_max=3, revisions_max=2, past_max=2),
        "calibration": CalibrationRules(),
        "pool": PoolRules(target=12, admit_per_round=4, waves_max=2, review_every_updates=2, review_attempts=4),
        "training": TrainingRules(updates_per_round=2, groups=3, attempts=4, waves_max=2),
        "evaluation": EvaluationRules(near_attempts=2, far_attempts=1),
    }
    return Science(**{**settings, **changes})


def opening(seed: int = 7, science: Science | None = None) -> list[Message]:
    """What the operator says to start a run."""
    return [
        RunStarted(
            seed=seed,
            science=science or small_science(),
            checkpoint=fake_digest("cold start"),
            code_version="test",
            policies={},
            messages={},
            base_digest=fake_digest("base"),
            base_kind="host",
            heldout=(
                HeldOutSet(name="near", digest=fake_digest("near"), envs=(fake_digest("n1"), fake_digest("n2"))),
                HeldOutSet(name="far", digest=fake_digest("far"), envs=(fake_digest("f1"),)),
            ),
        ),
        RosterChanged(
            ordinal=0, role=Role.proposer, entries=(RosterEntry(name="procedural", model="procedural", share=1.0),)
        ),
    ]


def hidden(role: Role, event: Event) -> bool:
    return role is Role.proposer and event.body.lane() == "evaluate"


@dataclass
class Wheel:
    """`order_seed` decides who moves next; results must not depend on it."""

    script: Script = field(default_factory=Script)
    order_seed: int = 0
    events: list[Event] = field(default_factory=list)
    by_id: dict[str, Event] = field(default_factory=dict)
    views: dict[Role, Any] = field(default_factory=lambda: {role: POLICIES[role].initial() for role in DECIDERS})
    positions: dict[Role, int] = field(default_factory=lambda: dict.fromkeys(DECIDERS, 0))
    work: list[Message] = field(default_factory=list)

    def append(self, message: Message) -> None:
        subject = subject_of(RUN, message)
        assert parse_subject(subject).id == message.id
        event = decode(encode(message, Meta(service="test")), subject=subject, seq=len(self.events) + 1)
        taken = self.by_id.get(event.id)
        if taken is not None:
            assert taken.body_digest == event.body_digest, f"{message.name} said twice with different bodies"
            return
        self.by_id[event.id] = event
        self.events.append(event)
        if EDGES[message.name].work_for:
            self.work.append(message)

    def turn(self, opening_messages: list[Message]) -> list[Event]:
        """Run until nobody has anything to do."""
        for message in opening_messages:
            self.append(message)
        chooser = random.Random(self.order_seed)
        while True:
            ready = [role for role in DECIDERS if self.positions[role] < len(self.events)]
            choices = len(ready) + len(self.work)
            if choices == 0:
                return self.events
            pick = chooser.randrange(choices)
            if pick < len(ready):
                self._decide(ready[pick])
            else:
                self._work(pick - len(ready), chooser)

    def _decide(self, role: Role) -> None:
        event = self.events[self.positions[role]]
        self.positions[role] += 1
        if hidden(role, event):
            return
        policy = POLICIES[role]
        self.views[role] = policy.fold(self.views[role], event)
        for message in policy.decide(self.views[role], event):
            self.append(message)

    def _work(self, place: int, chooser: random.Random) -> None:
        message = self.work.pop(place)
        answers = self.script.answer(message)
        chooser.shuffle(answers)
        for answer in answers:
            self.append(answer)
