"""The slots of the running round, folded from the log: the one account that proposer and validator both go by."""

from dataclasses import dataclass, field
from enum import StrEnum

from schemas.messages import (
    EnvAbandoned,
    EnvCalibrated,
    EnvProposed,
    EnvRequested,
    EnvValidated,
    Message,
    RoundPlanned,
    SlotMessage,
)
from schemas.outcomes import Calibration, Verdict
from schemas.parts import Assignment
from schemas.science import ProposalRules


class Stage(StrEnum):
    planned = "planned"
    requested = "requested"
    proposed = "proposed"
    valid = "valid"
    revising = "revising"
    done = "done"


@dataclass
class SlotState:
    assignment: Assignment
    stage: Stage = Stage.planned
    revision: int = 0
    env: str | None = None
    admitted: bool = False


def to_diagnose(body: Message, state: SlotState, rules: ProposalRules) -> bool:
    """Is a diagnosis due, which the revision of the slot that `body` moved waits for?"""
    too_hard = isinstance(body, EnvCalibrated) and body.outcome is Calibration.too_hard
    return rules.diagnose and too_hard and state.stage is Stage.revising


@dataclass
class SlotBook:
    """Stages of all slots of one round. Answers that come twice, or for another revision, change nothing."""

    revisions_max: int
    round: int = -1
    wave: int = -1
    waves_left: int = 0
    target: int = 0
    slots: dict[int, SlotState] = field(default_factory=dict)

    def fold(self, body: Message) -> SlotState | None:
        """Take one message in. Returns the slot that it moved, if it moved one."""
        match body:
            case RoundPlanned():
                self._plan(body)
                return None
            case EnvRequested():
                return self._move(body, (Stage.planned, Stage.revising), Stage.requested)
            case EnvProposed():
                state = self._move(body, (Stage.requested,), Stage.proposed)
                if state is not None:
                    state.env = body.env
                return state
            case EnvAbandoned():
                return self._move(body, (Stage.requested,), Stage.done)
            case EnvValidated():
                return self._move(body, (Stage.proposed,), self._after_verdict(body))
            case EnvCalibrated():
                state = self._move(body, (Stage.valid,), self._after_calibration(body))
                if state is not None and body.outcome is Calibration.admitted:
                    state.admitted = True
                return state
            case _:
                return None

    def _plan(self, plan: RoundPlanned) -> None:
        if (plan.round, plan.wave) <= (self.round, self.wave):
            return
        if plan.wave == 0:
            self.slots, self.target = {}, plan.target
        self.round, self.wave, self.waves_left = plan.round, plan.wave, plan.waves_left
        for slot in plan.slots:
            self.slots[slot.slot] = SlotState(slot.assignment)

    def _move(self, body: SlotMessage, sources: tuple[Stage, ...], target: Stage) -> SlotState | None:
        state = self.slots.get(body.slot) if body.round == self.round else None
        if state is None or state.stage not in sources:
            return None
        if isinstance(body, EnvRequested):
            state.revision = body.revision
        elif body.revision != state.revision:
            return None
        state.stage = target
        return state

    def _after_verdict(self, body: EnvValidated) -> Stage:
        if body.verdict is Verdict.valid:
            return Stage.valid
        return self._revise_or_done(body, body.verdict is Verdict.invalid)

    def _after_calibration(self, body: EnvCalibrated) -> Stage:
        if body.outcome is Calibration.admitted:
            return Stage.done
        return self._revise_or_done(body, body.outcome is not Calibration.infra_failed)

    def _revise_or_done(self, body: SlotMessage, revisable: bool) -> Stage:
        return Stage.revising if revisable and body.revision < self.revisions_max else Stage.done

    def open(self) -> int:
        """Slots that somebody works on now."""
        return sum(state.stage not in (Stage.planned, Stage.done) for state in self.slots.values())

    def admitted(self) -> list[int]:
        return [slot for slot, state in sorted(self.slots.items()) if state.admitted]

    def wave_done(self) -> bool:
        return bool(self.slots) and all(state.stage is Stage.done for state in self.slots.values())

    def deficit(self) -> int:
        return max(0, self.target - len(self.admitted()))

    def round_done(self) -> bool:
        """Every slot is terminal, and enough were admitted or no wave is left."""
        return self.wave_done() and (self.deficit() == 0 or self.waves_left == 0)
