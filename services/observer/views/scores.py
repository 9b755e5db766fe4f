"""Held-out scores: how often, and how far, the solver's checkpoints solve environments that nobody trained on."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from schemas.outcomes import RolloutOutcome
from services.observer.policy import Evaluation, Progress, wilson

NEAR = "near"


class SkillKind(Protocol):
    """What a report needs to know of a skill that tests are named after (`<skill>__<what>`)."""

    @property
    def family(self) -> str: ...
    @property
    def turns_min(self) -> int: ...


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint on one held-out set. Intervals are 95% Wilson; those by environment count an environment once,
    however often it was attempted, and are the careful ones."""

    set_name: str
    checkpoint_version: int
    envs: int
    rollouts: int
    """Graded ones."""
    masked: int
    """Failed by infrastructure: in no rate."""
    solved: int
    pass_rate: float
    pass_interval: tuple[float, float]
    pass_interval_by_env: tuple[float, float]
    mean_reward: float
    reward_interval: tuple[float, float]


class FamilyScore(msgspec.Struct, frozen=True, kw_only=True):
    """How often all tests of a skill passed, summed over the skills of a family."""

    set_name: str
    checkpoint_version: int
    family: str
    multi_turn: bool
    """Every skill of the family needs two or more turns."""
    trials: int
    passed: int
    rate: float
    interval: tuple[float, float]


def held_out_scores(progress: Progress) -> tuple[Score, ...]:
    """By set and checkpoint version."""
    groups: dict[tuple[str, int], list[Evaluation]] = defaultdict(list)
    for evaluation in progress.evaluations:
        groups[evaluation.set_name, evaluation.checkpoint_version].append(evaluation)
    return tuple(_score(name, version, groups[name, version]) for name, version in sorted(groups))


def score_of(progress: Progress, set_name: str, version: int) -> Score | None:
    """The score of one checkpoint so far; None before its first graded rollout."""
    found = [e for e in progress.evaluations if e.set_name == set_name and e.checkpoint_version == version]
    return _score(set_name, version, found) if any(e.reward is not None for e in found) else None


def _score(set_name: str, version: int, evaluations: Iterable[Evaluation]) -> Score:
    everything = list(evaluations)
    rewards = [e.reward for e in everything if e.reward is not None]
    solved = sum(e.outcome is RolloutOutcome.solved for e in everything)
    envs = len({e.env for e in everything if e.reward is not None})
    rate = solved / len(rewards) if rewards else 0.0
    mean = sum(rewards) / len(rewards) if rewards else 0.0
    return Score(
        set_name=set_name,
        checkpoint_version=version,
        envs=envs,
        rollouts=len(rewards),
        masked=len(everything) - len(rewards),
        solved=solved,
        pass_rate=rate,
        pass_interval=wilson(rate, len(rewards)),
        pass_interval_by_env=wilson(rate, envs),
        mean_reward=mean,
        reward_interval=wilson(mean, len(rewards)),
    )


def family_scores(
    progress: Progress, skills: Mapping[str, SkillKind], *, set_name: str = NEAR
) -> tuple[FamilyScore, ...]:
    """By family and version, families in the order of their names. Tests of unknown skills are left out.

    A rollout whose tests could not be read failed every skill that its environment is known to test.
    """
    wanted = [e for e in progress.evaluations if e.set_name == set_name and e.reward is not None]
    tested: dict[str, set[str]] = defaultdict(set)
    for evaluation in wanted:
        tested[evaluation.env] |= {_skill(name) for name, _ in evaluation.tests} & skills.keys()
    trials: dict[tuple[str, int], list[bool]] = defaultdict(list)
    for evaluation in wanted:
        for skill in sorted(tested[evaluation.env]):
            results = [passed for name, passed in evaluation.tests if _skill(name) == skill]
            trials[skills[skill].family, evaluation.checkpoint_version].append(bool(results) and all(results))
    turns: dict[str, list[int]] = defaultdict(list)
    for kind in skills.values():
        turns[kind.family].append(kind.turns_min)
    return tuple(
        FamilyScore(
            set_name=set_name,
            checkpoint_version=version,
            family=family,
            multi_turn=min(turns[family]) > 1,
            trials=len(results),
            passed=sum(results),
            rate=sum(results) / len(results),
            interval=wilson(sum(results) / len(results), len(results)),
        )
        for (family, version), results in sorted(trials.items())
    )


def _skill(test: str) -> str:
    return test.partition("__")[0]
