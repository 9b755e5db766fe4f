"""The closed lists of values that messages carry."""

from enum import StrEnum


class Nature(StrEnum):
    """What a message is, and with that which rules bind it."""

    operator = "operator"
    decision = "decision"
    request = "request"
    fact = "fact"
    note = "note"


class Role(StrEnum):
    operator = "operator"
    proposer = "proposer"
    validator = "validator"
    solver = "solver"
    trainer = "trainer"
    observer = "observer"


class Direction(StrEnum):
    simpler = "simpler"
    harder = "harder"
    new = "new"


class Purpose(StrEnum):
    """What a group of rollouts is for."""

    draft = "draft"
    calibrate = "calibrate"
    review = "review"
    diagnose = "diagnose"
    train = "train"
    evaluate = "evaluate"


class GateOutcome(StrEnum):
    passed = "passed"
    failed = "failed"
    skipped = "skipped"
    infra_failed = "infra_failed"


class Verdict(StrEnum):
    valid = "valid"
    invalid = "invalid"
    infra_failed = "infra_failed"


class Abandoned(StrEnum):
    """Why no proposal came. All but the last count as invalid."""

    no_submission = "no_submission"
    malformed = "malformed"
    over_budget = "over_budget"
    refused = "refused"
    infra_failed = "infra_failed"


class Calibration(StrEnum):
    admitted = "admitted"
    too_easy = "too_easy"
    too_hard = "too_hard"
    flat = "flat"
    infra_failed = "infra_failed"


class RolloutOutcome(StrEnum):
    """`infra_failed` has no reward and is masked everywhere; the others are graded."""

    solved = "solved"
    unsolved = "unsolved"
    truncated = "truncated"
    infra_failed = "infra_failed"


class CheckpointReason(StrEnum):
    cold_start = "cold_start"
    update = "update"
    no_signal = "no_signal"
    non_finite = "non_finite"
    infra_failed = "infra_failed"


class Dropped(StrEnum):
    """Why a group is not in an update."""

    zero_variance = "zero_variance"
    too_few = "too_few"
    surplus = "surplus"


class Retired(StrEnum):
    too_easy = "too_easy"
    too_hard = "too_hard"
    flat = "flat"
    duplicate = "duplicate"
    quarantined = "quarantined"
    rotted = "rotted"
    """It passed the gates once and does not pass them now."""


class Resolution(StrEnum):
    retry = "retry"
    give_up = "give_up"
