"""The report of a run: the same numbers as data and as Markdown. Pure over the events; nothing is read from outside."""

from collections.abc import Iterable, Mapping

import msgspec

from schemas.costs import CostStage, CostSum
from schemas.envelope import Event
from services.observer.policy import Progress, Round, fold, initial, wilson
from services.observer.views.scores import FamilyScore, Score, SkillKind, family_scores, held_out_scores


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One round."""

    round: int
    planned: int
    waves: int
    proposed: int
    abandoned: dict[str, int]
    valid: int
    invalid_by_gate: dict[str, int]
    calibrations: dict[str, int]
    calibrations_long: int
    """Those with more attempts because the mean was near an edge of the band."""
    revisions: int
    admitted: int
    admitted_after_revision: int
    added: int
    retired: dict[str, int]
    rollouts: dict[str, int]
    outcomes: dict[str, int]
    updates: int
    checkpoints: dict[str, int]
    dropped_groups: dict[str, int]
    near: float | None
    far: float | None
    """Mean reward of the newest checkpoint that was evaluated in this round."""
    degraded: bool
    digest: str | None


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """A share with its 95% Wilson interval."""

    count: int
    of: int
    rate: float
    interval: tuple[float, float]


class MakerRate(msgspec.Struct, frozen=True, kw_only=True):
    entry: str
    valid: Rate
    valid_first: Rate
    """Without revisions."""
    admitted: Rate


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    tokens: int
    prompt_tokens: int
    cached_tokens: int
    """Part of `prompt_tokens`."""
    completion_tokens: int
    cpu_s: float
    sandbox_cpu_s: float
    usd: float
    """By the price table of the roster; models without a price cost none."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    profile: str | None
    seed: int | None
    base_kind: str | None
    base_digest: str | None
    code_version: str | None
    finished: str | None
    wall_s: float
    rounds: tuple[Row, ...]
    valid: Rate
    valid_first: Rate
    makers: tuple[MakerRate, ...]
    making: Spent
    """Proposals, draft checks and tries, gates, calibrations, diagnoses."""
    learning: Spent
    evaluating: Spent
    tries_unknown: int
    """Tries that ended without saying what they cost: it is in no sum."""
    making_per_valid: Spent | None
    making_per_admitted: Spent | None
    held_out: tuple[Score, ...]
    families: tuple[FamilyScore, ...]
    pool: tuple[tuple[int, int, int, int], ...]
    """Version, members, added, retired."""
    tries: int
    failures: dict[str, int]
    parked: int
    inert: tuple[str, ...]
    """Second answers to one request, by id: they change nothing."""
    messages: dict[str, int]


def progress_of(events: Iterable[Event]) -> Progress:
    view = initial()
    for event in events:
        view = fold(view, event)
    return view


def report(progress: Progress, skills: Mapping[str, SkillKind]) -> Report:
    """The report so far. `skills` gives the families of the near scores."""
    run, makers, making = progress.run, progress.makers, progress.spent[CostStage.making]
    scores = held_out_scores(progress)
    valid = sum(maker.valid for maker in makers.values())
    admitted = sum(maker.admitted for maker in makers.values())
    return Report(
        profile=run.science.profile if run else None,
        seed=run.seed if run else None,
        base_kind=run.base_kind if run else None,
        base_digest=run.base_digest if run else None,
        code_version=run.code_version if run else None,
        finished=progress.finished,
        wall_s=max(0, progress.last_ns - progress.started_ns) / 1e9 if progress.started_ns else 0.0,
        rounds=tuple(_row(number, counts, scores) for number, counts in sorted(progress.rounds.items())),
        valid=_rate(valid, sum(maker.answered for maker in makers.values())),
        valid_first=_rate(
            sum(maker.first_valid for maker in makers.values()),
            sum(maker.first_answered for maker in makers.values()),
        ),
        makers=tuple(
            MakerRate(
                entry=name,
                valid=_rate(maker.valid, maker.answered),
                valid_first=_rate(maker.first_valid, maker.first_answered),
                admitted=_rate(maker.admitted, maker.answered),
            )
            for name, maker in sorted(makers.items())
        ),
        making=_spent(making),
        learning=_spent(progress.spent[CostStage.learning]),
        evaluating=_spent(progress.spent[CostStage.evaluating]),
        tries_unknown=len(progress.costs.unknown()),
        making_per_valid=_spent(making, valid) if valid else None,
        making_per_admitted=_spent(making, admitted) if admitted else None,
        held_out=scores,
        families=family_scores(progress, skills),
        pool=tuple(progress.pool),
        tries=progress.tries,
        failures=dict(sorted(progress.failures.items())),
        parked=progress.parked,
        inert=tuple(progress.inert),
        messages=dict(sorted(progress.messages.items())),
    )


def _row(number: int, counts: Round, scores: tuple[Score, ...]) -> Row:
    newest = max(counts.evaluated, default=None)
    means = {score.set_name: score.mean_reward for score in scores if score.checkpoint_version == newest}
    return Row(
        round=number,
        planned=counts.planned,
        waves=counts.waves,
        proposed=counts.proposed,
        abandoned=dict(sorted(counts.abandoned.items())),
        valid=counts.valid,
        invalid_by_gate=dict(sorted(counts.failed_gates.items())),
        calibrations=dict(sorted(counts.calibrations.items())),
        calibrations_long=counts.long_calibrations,
        revisions=counts.revisions,
        admitted=counts.admitted,
        admitted_after_revision=counts.admitted_after_revision,
        added=counts.added,
        retired=dict(sorted(counts.retired.items())),
        rollouts=dict(sorted(counts.rollouts.items())),
        outcomes=dict(sorted(counts.outcomes.items())),
        updates=counts.updates,
        checkpoints=dict(sorted(counts.checkpoints.items())),
        dropped_groups=dict(sorted(counts.dropped.items())),
        near=means.get("near"),
        far=means.get("far"),
        degraded=counts.degraded,
        digest=counts.digest,
    )


def _rate(count: int, of: int) -> Rate:
    rate = count / of if of else 0.0
    return Rate(count=count, of=of, rate=rate, interval=wilson(rate, of))


def _spent(cost: CostSum, parts: int = 1) -> Spent:
    return Spent(
        tokens=round(cost.tokens / parts),
        prompt_tokens=round(cost.prompt_tokens / parts),
        cached_tokens=round(cost.cached_tokens / parts),
        completion_tokens=round(cost.completion_tokens / parts),
        cpu_s=round(cost.cpu_s / parts, 3),
        sandbox_cpu_s=round(cost.sandbox_cpu_s / parts, 3),
        usd=round(cost.usd / parts, 6),
    )


def to_json(data: Report) -> bytes:
    return msgspec.json.format(msgspec.json.encode(data, order="deterministic"), indent=2) + b"\n"
