"""The report: held-out scores by hand, families, and what a person reads."""

from dataclasses import dataclass

import msgspec
import pytest

from schemas.messages import Message, RolloutCompleted, RolloutRequested, RoundClosed
from schemas.outcomes import Purpose, RolloutOutcome
from services.observer.policy import Progress, wilson
from services.observer.views.markdown import to_markdown
from services.observer.views.report import Report, progress_of, report, to_json
from services.observer.views.scores import family_scores, held_out_scores, score_of
from tests.support.feeding import as_event
from tests.support.histories import whole_run


@dataclass(frozen=True)
class Kind:
    family: str
    turns_min: int = 1


SKILLS = {
    "copy": Kind("files"), "sort": Kind("text"), "note": Kind("lookup", 2), "trail": Kind("lookup", 3),
    "set": Kind("json", 2), "keys": Kind("json"),
}  # fmt: skip


def asked(env: str, set_name: str = "near", version: int = 0) -> RolloutRequested:
    return RolloutRequested(
        env=env, checkpoint_version=version, checkpoint="c", purpose=Purpose.evaluate, attempts=2, seed=1,
        set_name=set_name,
    )  # fmt: skip


def rolled(request: RolloutRequested, attempt: int, reward: float | None, **tests: bool) -> RolloutCompleted:
    outcome = {None: RolloutOutcome.infra_failed, 1.0: RolloutOutcome.solved}.get(reward, RolloutOutcome.unsolved)
    return RolloutCompleted(
        request=request.id, attempt=attempt, env=request.env, purpose=Purpose.evaluate,
        checkpoint_version=request.checkpoint_version, outcome=outcome, reward=reward, tests=tests, content=None,
    )  # fmt: skip


def folded(*bodies: Message) -> Progress:
    return progress_of(as_event(body) for body in bodies)


def test_held_out_scores_leave_out_what_infrastructure_failed() -> None:
    one, two, far = asked("e1"), asked("e2"), asked("e3", "far")
    view = folded(
        one, two, far, rolled(one, 0, 1.0), rolled(one, 1, 0.5), rolled(two, 0, None), rolled(two, 1, 0.0),
        rolled(far, 0, 1.0),
    )  # fmt: skip
    far_score, near = held_out_scores(view)
    assert (near.set_name, near.rollouts, near.masked, near.solved, near.envs) == ("near", 3, 1, 1, 2)
    assert near.mean_reward == pytest.approx(0.5)
    assert near.pass_interval == wilson(1 / 3, 3)
    assert near.pass_interval_by_env == wilson(1 / 3, 2)
    assert (far_score.set_name, far_score.pass_rate) == ("far", 1.0)


def test_a_set_with_no_graded_rollout_has_no_score_yet() -> None:
    one = asked("e1")
    assert score_of(folded(one), "near", 0) is None
    assert score_of(folded(one, rolled(one, 0, None)), "near", 0) is None
    score = score_of(folded(one, rolled(one, 0, 0.25)), "near", 0)
    assert score is not None
    assert score.mean_reward == 0.25


def test_a_skill_passes_with_all_of_its_tests_and_families_sum_their_skills() -> None:
    one = asked("e1")
    tests = {"copy__copied": True, "copy__kept": False, "sort__sorted": True}
    view = folded(one, rolled(one, 0, 0.5, **tests), rolled(one, 1, 1.0, **dict.fromkeys(tests, True)))
    found = {score.family: (score.passed, score.trials) for score in family_scores(view, SKILLS)}
    assert found == {"files": (1, 2), "text": (2, 2)}


def test_a_rollout_whose_tests_are_unknown_fails_the_skills_of_its_environment() -> None:
    one = asked("e1")
    view = folded(one, rolled(one, 0, 1.0, copy__copied=True), rolled(one, 1, 0.0))
    assert [(score.passed, score.trials) for score in family_scores(view, SKILLS)] == [(1, 2)]


def test_families_whose_every_skill_needs_more_turns_stand_apart() -> None:
    one = asked("e1")
    tests = {"note__deleted": True, "set__value": False, "copy__copied": True}
    view = folded(one, rolled(one, 0, 0.5, **tests))
    assert {score.family for score in family_scores(view, SKILLS) if score.multi_turn} == {"lookup"}
    text = to_markdown(report(view, SKILLS))
    one_turn, more_turns = text.split("## Near by family: a later command depends on earlier output")
    assert "| lookup |" in more_turns.split("##")[0]
    assert "| json |" in one_turn
    assert "| lookup |" not in one_turn


def test_tests_of_unknown_names_are_left_out_of_families() -> None:
    one = asked("e1")
    assert family_scores(folded(one, rolled(one, 0, 1.0, test_outputs=True)), SKILLS) == ()


def test_the_report_of_a_whole_run_reads_back_and_shows_every_round() -> None:
    data = report(progress_of(whole_run().events), SKILLS)
    assert msgspec.json.decode(to_json(data), type=Report) == data
    text = to_markdown(data)
    for heading in ("Rounds: environments", "Rounds: learning", "Valid rate", "Cost", "Held out", "Trouble"):
        assert f"## {heading}\n" in text
    assert "host: the host's own /usr, read-only" in text
    assert "zero_variance 2" in text
    assert [row.near for row in data.rounds] == [
        score.mean_reward for score in data.held_out if score.set_name == "near" and score.checkpoint_version > 0
    ]
    assert data.making_per_valid is not None
    assert data.making_per_valid.tokens == round(data.making.tokens / data.valid.count)


def test_a_degraded_round_is_said_to_be_not_comparable() -> None:
    closed = RoundClosed(round=1, counts={}, digest="ab" * 32, memory="m", degraded=True)
    text = to_markdown(report(folded(closed), SKILLS))
    assert "abababababababab degraded: digest not comparable" in text
    assert "- degraded rounds: 1\n" in text


def test_the_report_of_nothing_is_a_report() -> None:
    text = to_markdown(report(progress_of([]), SKILLS))
    assert "not finished" in text
    assert "Valid: none" in text
