"""Pieces that several messages carry."""

from typing import Literal

from msgspec import UNSET, UnsetType

from schemas.models import ModelRules
from schemas.outcomes import Direction, Dropped, GateOutcome, Retired
from schemas.science import Section

Arm = Literal["prompt", "prompt+feedback", "terminal"]
"""How a proposer works: one completion; completions with the gates' answer between them; a shell of its own (paper)."""


class Usage(Section, frozen=True, kw_only=True, omit_defaults=True):
    """What a try spent, in counts that follow from its causes."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Of `prompt_tokens`, those that the endpoint had in its cache."""
    completion_tokens: int = 0
    turns: int = 0


class RosterEntry(Section, frozen=True, kw_only=True):
    """A model that plays a role, and its share of the work (shares are relative)."""

    name: str
    model: str
    arm: Arm = "terminal"
    share: float = 1.0
    rules: ModelRules | UnsetType = UNSET
    """How a model behind an endpoint is asked; none for a built-in one."""


class RolloutRef(Section, frozen=True, kw_only=True):
    """A rollout cited by id, with the digest of its content artifact."""

    id: str
    content: str
    reward: float


class CitedRollout(Section, frozen=True, kw_only=True):
    """A rollout that an assignment rests on, with the result of every test by name."""

    id: str
    content: str
    reward: float
    tests: dict[str, bool]


class Assignment(Section, frozen=True, kw_only=True):
    """The order to a proposer that fills a slot."""

    direction: Direction
    domain: str
    seed: int
    parent: str | None = None
    pass_rate: float | None = None
    """Mean reward of the solver on the parent, [0, 1]."""
    commonest_failure: str | None = None
    """Name of the test that failed most often in the cited rollouts."""
    rollouts: tuple[CitedRollout, ...] = ()
    past: tuple[str, ...] = ()
    trajectories: tuple[str, ...] | UnsetType = UNSET
    """Attempts of other agents on the parent, where it was imported with some."""


class Slot(Section, frozen=True, kw_only=True):
    slot: int
    assignment: Assignment


class Evidence(Section, frozen=True, kw_only=True):
    """Why a revision is asked for: what a gate or the calibration found."""

    kind: str
    detail: str
    env: str
    mean: float | None = None
    commonest_failure: str | None = None
    diagnosis: CitedRollout | UnsetType = UNSET
    """Of what was too hard: an attempt that had hints from the reference solution. For the author's eyes alone."""


class GateResult(Section, frozen=True, kw_only=True):
    gate: str
    outcome: GateOutcome
    detail: str = ""
    evidence: str | None = None
    """Digest of the evidence's content artifact."""


class HeldOutSet(Section, frozen=True, kw_only=True):
    """A frozen set of environments that no proposer sees."""

    name: str
    digest: str
    envs: tuple[str, ...]


class PoolEntry(Section, frozen=True, kw_only=True):
    env: str
    round: int
    slot: int


class PoolLeaving(Section, frozen=True, kw_only=True):
    env: str
    reason: Retired
    detail: str = ""


class PlannedGroup(Section, frozen=True, kw_only=True):
    """A group that an update learns from; rewards of masked members are left out."""

    env: str
    request: str
    rollouts: tuple[RolloutRef, ...]


class DroppedGroup(Section, frozen=True, kw_only=True):
    env: str
    request: str
    reason: Dropped


class WorkError(Section, frozen=True, kw_only=True):
    """What went wrong in a try, by the one who saw it."""

    boundary: str
    kind: str
    detail: str
    took_effect: bool = False
    retry: bool = True
