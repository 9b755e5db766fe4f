"""Every message of the log: its name, version, nature, logical key and body.

A body follows from its causes alone. Who said it, when and at what cost is in `envelope.Meta`.
"""

from schemas.messages.body import Message
from schemas.messages.environments import (
    DraftChecked,
    DraftCheckRequested,
    EnvAbandoned,
    EnvCalibrated,
    EnvImported,
    EnvProposed,
    EnvRecalled,
    EnvRechecked,
    EnvRecheckRequested,
    EnvRequested,
    EnvValidated,
    PoolChanged,
    RoundPlanned,
    SlotMessage,
)
from schemas.messages.learning import CheckpointPublished, RolloutCompleted, RolloutRequested, UpdatePlanned
from schemas.messages.notes import SegmentSealed, WorkFailed, WorkNote, WorkParked, WorkStarted
from schemas.messages.run import RosterChanged, RoundClosed, RunFinished, RunStarted, WorkResolved

MESSAGES: tuple[type[Message], ...] = (
    RunStarted,
    RosterChanged,
    WorkResolved,
    RoundPlanned,
    EnvRequested,
    DraftCheckRequested,
    DraftChecked,
    EnvProposed,
    EnvAbandoned,
    EnvValidated,
    EnvCalibrated,
    PoolChanged,
    RolloutRequested,
    RolloutCompleted,
    UpdatePlanned,
    CheckpointPublished,
    RoundClosed,
    RunFinished,
    EnvImported,
    EnvRecalled,
    EnvRecheckRequested,
    EnvRechecked,
    WorkStarted,
    WorkFailed,
    WorkParked,
    SegmentSealed,
)
"""All of them."""

BY_NAME: dict[str, type[Message]] = {message.name: message for message in MESSAGES}

__all__ = [
    "BY_NAME",
    "MESSAGES",
    "CheckpointPublished",
    "DraftCheckRequested",
    "DraftChecked",
    "EnvAbandoned",
    "EnvCalibrated",
    "EnvImported",
    "EnvProposed",
    "EnvRecalled",
    "EnvRecheckRequested",
    "EnvRechecked",
    "EnvRequested",
    "EnvValidated",
    "Message",
    "PoolChanged",
    "RolloutCompleted",
    "RolloutRequested",
    "RosterChanged",
    "RoundClosed",
    "RoundPlanned",
    "RunFinished",
    "RunStarted",
    "SegmentSealed",
    "SlotMessage",
    "UpdatePlanned",
    "WorkFailed",
    "WorkNote",
    "WorkParked",
    "WorkResolved",
    "WorkStarted",
]
