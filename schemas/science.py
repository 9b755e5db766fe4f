"""All settings that can change a result. RunStarted carries them; two runs with equal science and seed are equal."""

from typing import Annotated, Literal

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Positive = Annotated[float, msgspec.Meta(gt=0.0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of `run.toml`: unknown keys are errors."""


class RolloutRules(Section, frozen=True, kw_only=True):
    """Counted limits of one solver rollout."""

    turns_max: Count = 6
    new_tokens_max: Count = 48
    """Sampled tokens of one turn."""
    context_tokens_max: Count = 512
    shown_bytes_max: Count = 400
    """Command output shown to the model; head and tail stay."""
    cpu_s: Positive = 10.0
    temperature: Positive = 1.0


class ProposalRules(Section, frozen=True, kw_only=True):
    turns_max: Count = 64
    cpu_s: Positive = 60.0
    open_max: Count = 8
    """Slots that are worked on at once (W)."""
    revisions_max: Natural = 2
    cited_max: Annotated[int, msgspec.Meta(ge=1, le=16)] = 8
    """Rollouts on the parent that an assignment cites. Bounded, since a plan is one message."""
    past_max: Natural = 4
    """Admitted environments shown as examples."""
    paired: bool = False
    """Slots go two and two: both have one assignment, and two different entries of the roster answer it, each entry as
    often as another, whatever their shares; so they can be compared assignment by assignment."""
    feedback_max: Natural = 3
    """Arm `prompt+feedback`: answers after the first one, each to what the gates said."""
    tries_max: Natural = 4
    """Arm `terminal`: times that a draft which passed its check may be tried on the current solver."""
    diagnose: bool = False
    """Before a revision of what was too hard the solver tries it once more, with hints from the reference solution."""


class CalibrationRules(Section, frozen=True, kw_only=True):
    """Paper: 4 attempts, 8 near an edge; admitted with mean in the band and enough spread."""

    attempts: Count = 4
    attempts_more: Count = 4
    edge: Share = 0.15
    mean_min: Share = 0.25
    mean_max: Share = 0.75
    std_min: Share = 0.1


class PoolRules(Section, frozen=True, kw_only=True):
    target: Count = 256
    """Most members. A smaller pool is recorded, not waited for."""
    admit_per_round: Annotated[int, msgspec.Meta(ge=1, le=64)] = 32
    """Environments that a round tries to admit. Bounded, since a plan is one message."""
    waves_max: Count = 3
    review_every_updates: Count = 16
    review_attempts: Count = 4
    recheck_every_rounds: Natural = 0
    """A member goes through the gates again so many rounds after it last passed them; 0: never."""
    duplicate_similarity: Share = 0.8


class GateRules(Section, frozen=True, kw_only=True):
    """What an environment must hold up to before it is admitted. What is alike in the pool: `PoolRules`."""

    ngram_words: Annotated[int, msgspec.Meta(ge=4, le=64)] = 13
    """Words in a row (stride 1) that an instruction may not share with a held-out one. Paper; Tmax: 13."""
    flaky_repeats: Count = 2
    """Times that oracle and no-op are run again in other surroundings; every test must end the same."""
    mutants_max: Natural = 8
    """Broken variants of the reference solution that are run at most; 0: none."""
    mutation_score_min: Share = 0.6
    """Least share of these that must lose reward. Measured: sound verifiers 0.75 and more, ones that look at half of
    the work 0.29 to 0.71."""


class TrainingRules(Section, frozen=True, kw_only=True):
    """One update: `groups` groups of `attempts` rollouts."""

    updates_per_round: Natural = 8
    groups: Count = 16
    attempts: Annotated[int, msgspec.Meta(ge=2)] = 16
    waves_max: Count = 3
    objective: Literal["dppo", "grpo"] = "dppo"
    learning_rate: Annotated[float, msgspec.Meta(ge=0)] = 1e-6
    tv_max: Share = 0.1
    grad_norm_max: Positive = 1.0
    minibatches: Count = 1


class EvaluationRules(Section, frozen=True, kw_only=True):
    near_attempts: Natural = 2
    far_attempts: Natural = 1
    every_rounds: Count = 1


class FailureRules(Section, frozen=True, kw_only=True):
    parked: Literal["give_up", "wait"] = "give_up"
    kills_max: Count = 20
    failures_max: Count = 3


class Science(Section, frozen=True, kw_only=True):
    """The `[science]` table."""

    profile: str = "default"
    rounds: Count = 3
    model: str = "nano"
    """Name of the solver's cold start."""
    engine: str = "torch-cpu"
    budget_tokens: Count | None = None
    """Prompt and completion tokens of the whole run, evaluations left out. Once they are spent nothing more is asked
    for, and the run ends when what is in flight is done. None: no bound."""
    budget_usd: Positive | None = None
    """The same in US dollars, by the prices of the roster."""
    domains: tuple[str, ...] = ()
    """Domains that assignments go through; empty: those of the built-in proposer."""
    rollout: RolloutRules = RolloutRules()
    proposal: ProposalRules = ProposalRules()
    calibration: CalibrationRules = CalibrationRules()
    gates: GateRules = GateRules()
    pool: PoolRules = PoolRules()
    training: TrainingRules = TrainingRules()
    evaluation: EvaluationRules = EvaluationRules()
    failures: FailureRules = FailureRules()
