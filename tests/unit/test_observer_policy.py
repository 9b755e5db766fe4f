"""Counts and rates of a run, folded from its events."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.costs import CostStage
from schemas.envelope import Event
from schemas.messages import (
    EnvAbandoned,
    EnvCalibrated,
    EnvProposed,
    EnvRequested,
    EnvValidated,
    Message,
    RolloutCompleted,
    RolloutRequested,
    RoundClosed,
)
from schemas.outcomes import Abandoned, Calibration, Direction, GateOutcome, Purpose, RolloutOutcome, Verdict
from schemas.parts import Assignment, GateResult, RosterEntry, Usage
from services.observer.policy import Progress, fold, wilson
from services.observer.views.report import progress_of
from tests.support.feeding import as_event
from tests.support.histories import whole_run

ENTRY = RosterEntry(name="brain", model="m")


def folded(*bodies: Message) -> Progress:
    return progress_of(as_event(body) for body in bodies)


def proposed(slot: int, revision: int = 0, env: str = "e1") -> EnvProposed:
    return EnvProposed(
        slot=slot, revision=revision, env=env, parent=None, cited=(), entry=ENTRY, checkpoint=None, transcript="t",
        usage=Usage(prompt_tokens=100, completion_tokens=20), pool_version=0,
    )  # fmt: skip


def requested(slot: int) -> EnvRequested:
    order = Assignment(direction=Direction.new, domain="files", seed=1)
    return EnvRequested(
        slot=slot, revision=0, assignment=order, entry=ENTRY, pool_version=0, checkpoint_version=0, memory=()
    )


def abandoned(slot: int, reason: Abandoned) -> EnvAbandoned:
    return EnvAbandoned(slot=slot, revision=0, reason=reason, entry=ENTRY)


def validated(slot: int, verdict: Verdict, revision: int = 0, env: str = "e1") -> EnvValidated:
    gates = (
        GateResult(gate="builds", outcome=GateOutcome.passed),
        GateResult(gate="oracle passes", outcome=GateOutcome.failed),
        GateResult(gate="no-op fails", outcome=GateOutcome.failed),
    )
    return EnvValidated(slot=slot, revision=revision, env=env, verdict=verdict, gates=gates)


@pytest.mark.parametrize(
    ("successes", "count", "low", "high"),
    [(0, 10, 0.0, 0.2775328), (5, 10, 0.2365931, 0.7634069), (10, 10, 0.7224672, 1.0), (81, 263, 0.2552831, 0.3661827)],
)
def test_wilson_gives_the_published_values(successes: int, count: int, low: float, high: float) -> None:
    found = wilson(successes / count, count)
    assert found == pytest.approx((low, high), abs=2e-4)


def test_wilson_of_nothing_is_everything() -> None:
    assert wilson(0.0, 0) == (0.0, 1.0)


@given(mean=st.floats(0, 1), count=st.integers(1, 10**6))
def test_wilson_holds_the_share_and_stays_within_bounds(mean: float, count: int) -> None:
    low, high = wilson(mean, count)
    assert 0 <= low <= mean + 1e-9
    assert mean - 1e-9 <= high <= 1


def test_an_abandoned_slot_counts_as_invalid_unless_infrastructure_failed() -> None:
    view = folded(
        abandoned(0, Abandoned.no_submission), abandoned(1, Abandoned.infra_failed), proposed(2),
        validated(2, Verdict.valid),
    )  # fmt: skip
    assert (view.makers["brain"].valid, view.makers["brain"].answered) == (1, 2)
    assert view.rounds[0].abandoned == {"no_submission": 1, "infra_failed": 1}


def test_a_verdict_that_infrastructure_failed_is_in_no_rate() -> None:
    view = folded(proposed(0), validated(0, Verdict.infra_failed))
    assert view.makers == {}
    assert (view.rounds[0].valid, view.rounds[0].invalid) == (0, 0)


def test_an_invalid_environment_is_counted_under_its_first_failed_gate() -> None:
    view = folded(proposed(0), validated(0, Verdict.invalid))
    assert view.rounds[0].failed_gates == {"oracle passes": 1}


def test_the_second_answer_to_a_request_is_inert_and_so_is_its_verdict() -> None:
    second = proposed(0)
    view = folded(requested(0), abandoned(0, Abandoned.refused), second, validated(0, Verdict.valid))
    assert view.inert == [second.id]
    assert (view.rounds[0].proposed, view.rounds[0].valid) == (0, 0)
    assert (view.makers["brain"].valid, view.makers["brain"].answered) == (0, 1)
    assert view.spent[CostStage.making].tokens == 120, "its tokens were spent all the same"


def test_a_revision_that_is_admitted_is_seen_and_first_tries_are_counted_alone() -> None:
    calibrated = EnvCalibrated(
        slot=0, revision=1, env="e2", outcome=Calibration.admitted, mean=0.5, std=0.5, count=8, rollouts=()
    )
    view = folded(
        proposed(0), validated(0, Verdict.invalid), proposed(0, 1, "e2"), validated(0, Verdict.valid, 1, "e2"),
        calibrated,
    )  # fmt: skip
    maker = view.makers["brain"]
    assert (maker.first_valid, maker.first_answered, maker.valid, maker.answered, maker.admitted) == (0, 1, 1, 2, 1)
    assert view.rounds[0].admitted_after_revision == 1


def test_a_calibration_with_more_attempts_is_counted() -> None:
    request = RolloutRequested(
        env="e", checkpoint_version=0, checkpoint="c", purpose=Purpose.calibrate, attempts=4, seed=1, ordinal=1,
        slot=0, revision=0,
    )  # fmt: skip
    assert folded(request).rounds[0].long_calibrations == 1


def test_costs_go_to_what_the_rollout_was_for() -> None:
    def rollout(purpose: Purpose) -> list[Message]:
        asked = RolloutRequested(
            env="e", purpose=purpose, checkpoint_version=0, checkpoint="c", attempts=1, seed=1, slot=0, revision=0
        )
        answer = RolloutCompleted(
            request=asked.id, attempt=0, env="e", purpose=purpose, checkpoint_version=0,
            outcome=RolloutOutcome.solved, reward=1.0, tests={}, content=None, usage=Usage(completion_tokens=7),
        )  # fmt: skip
        return [asked, answer]

    view = folded(*(body for purpose in Purpose for body in rollout(purpose)))
    found = {stage: spent.tokens for stage, spent in view.spent.items()}
    assert found == {CostStage.making: 21, CostStage.learning: 14, CostStage.evaluating: 7}


def everything(view: Progress) -> object:
    return {name: getattr(view, name) for name in vars(view)}


@settings(max_examples=15, deadline=None)
@given(cut=st.integers(0, 420), again=st.integers(0, 420))
def test_folding_on_after_a_stop_equals_folding_the_whole(cut: int, again: int) -> None:
    events = whole_run().events
    view = progress_of(events[:cut])
    for event in events[min(cut, again) :]:
        view = fold(view, event)
    assert everything(view) == everything(progress_of(events))


def test_repeated_events_change_nothing() -> None:
    events: list[Event] = whole_run().events
    assert everything(progress_of([*events[:300], *events[100:], *events])) == everything(progress_of(events))


def test_a_whole_run_is_counted_as_its_log_says() -> None:
    events = whole_run().events
    view = progress_of(events)
    assert sum(counts.proposed for counts in view.rounds.values()) == view.messages["env_proposed"] == 21
    assert sum(sum(counts.rollouts.values()) for counts in view.rounds.values()) == 240
    closed = [event.body.digest for event in events if isinstance(event.body, RoundClosed)]
    assert [counts.digest for counts in view.rounds.values()] == closed
    assert view.finished == "all rounds are done"
