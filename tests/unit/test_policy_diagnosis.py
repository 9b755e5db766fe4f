"""What is too hard is diagnosed once before it is revised; what the diagnosis earns reaches nobody but the author."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pytest

from schemas.envelope import Event
from schemas.messages import EnvCalibrated, EnvRequested, Message, RolloutCompleted, RolloutRequested, RoundClosed
from schemas.outcomes import Calibration, Purpose
from schemas.parked import infra_answers
from schemas.parts import CitedRollout
from schemas.science import CalibrationRules, ProposalRules
from tests.support.script import Script
from tests.support.wheel import Wheel, opening, small_science


@dataclass(frozen=True)
class Diagnosed(Script):
    """A diagnosis always succeeds, which nothing but hints would explain; or infrastructure always fails it."""

    lost: bool = False

    def answer(self, work: Message) -> list[Message]:
        if not isinstance(work, RolloutRequested) or work.purpose is not Purpose.diagnose:
            return super().answer(work)
        if self.lost:
            return infra_answers(work)
        return [
            msgspec.structs.replace(each, reward=1.0, tests={"hinted__check": False})
            for each in super().answer(work)
            if isinstance(each, RolloutCompleted)
        ]


def turn(script: Script, *, diagnose: bool = True, order_seed: int = 0) -> list[Event]:
    proposal = ProposalRules(open_max=3, revisions_max=2, past_max=2, diagnose=diagnose)
    science = small_science(proposal=proposal, calibration=CalibrationRules(mean_min=0.5))
    return Wheel(script=script, order_seed=order_seed).turn(opening(science=science))


@pytest.fixture(scope="module")
def run() -> list[Event]:
    return turn(Diagnosed())


def bodies(events: Sequence[Event]) -> list[Message]:
    return [event.body for event in events]


def test_every_revision_of_what_was_too_hard_carries_its_one_diagnosis_and_no_other_does(run: list[Event]) -> None:
    asked = {
        body.key(): body for body in bodies(run) if isinstance(body, RolloutRequested) and body.lane() == "diagnose"
    }
    hard = [body for body in bodies(run) if isinstance(body, EnvCalibrated) and body.outcome is Calibration.too_hard]
    revised = [body for body in hard if body.revision < 2]
    assert len(asked) == len(revised) > 3
    assert all(request.attempts == 1 for request in asked.values())
    done = {body.request: body for body in bodies(run) if isinstance(body, RolloutCompleted)}
    by_place = {(body.round, body.slot, body.revision): done[body.id] for body in asked.values()}
    for request in (body for body in bodies(run) if isinstance(body, EnvRequested) and body.evidence):
        assert request.evidence is not None
        before = by_place.get((request.round, request.slot, request.revision - 1))
        diagnosis = request.evidence.diagnosis
        assert isinstance(diagnosis, CitedRollout) == (before is not None)
        if before is not None and isinstance(diagnosis, CitedRollout):
            assert (diagnosis.id, diagnosis.content, diagnosis.reward) == (before.id, before.content, 1.0)
            assert request.evidence.env == before.env
            assert request.evidence.commonest_failure != "hinted__check"


def test_a_diagnosis_is_in_no_calibration_no_assignment_no_update_and_no_pool(run: list[Event]) -> None:
    diagnoses = [body for body in bodies(run) if isinstance(body, RolloutCompleted) and body.lane() == "diagnose"]
    assert diagnoses
    for event in run:
        body = event.body
        if isinstance(body, RolloutCompleted):
            continue
        rest = msgspec.structs.replace(body, evidence=None) if isinstance(body, EnvRequested) else body
        text = msgspec.json.encode(rest).decode()
        assert not any(each.id in text or (each.content or "-") in text for each in diagnoses), body.name
        assert "hinted__check" not in text


def test_a_diagnosis_changes_nothing_but_the_evidence_of_revisions() -> None:
    """As long as authors make nothing of it: then every other message of the run is the same, byte for byte."""
    with_it, without = turn(Diagnosed()), turn(Diagnosed(), diagnose=False)
    kinds = {"env_proposed", "env_validated", "env_calibrated", "pool_changed", "round_planned", "update_planned"}
    one, other = ({e.id: e.body_digest for e in events if e.body.name in kinds} for events in (with_it, without))
    assert one == other
    assert not any(event.body.lane() == "diagnose" for event in without)


def test_a_diagnosis_that_infrastructure_failed_leaves_the_revision_to_its_evidence() -> None:
    revised = [body for body in bodies(turn(Diagnosed(lost=True))) if isinstance(body, EnvRequested) and body.evidence]
    assert any(body.evidence and body.evidence.detail == "too_hard" for body in revised)
    assert not any(body.evidence and isinstance(body.evidence.diagnosis, CitedRollout) for body in revised)
    assert b"diagnosis" not in msgspec.json.encode(revised)


def test_the_order_of_delivery_does_not_change_a_digest(run: list[Event]) -> None:
    digests = [body.digest for body in bodies(run) if isinstance(body, RoundClosed)]
    assert len(digests) == 3
    for order_seed in range(1, 6):
        other = turn(Diagnosed(), order_seed=order_seed)
        assert [body.digest for body in bodies(other) if isinstance(body, RoundClosed)] == digests
