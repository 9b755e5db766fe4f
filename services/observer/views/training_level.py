"""Replay level `training`: every checkpoint computed again from the recorded rollouts."""

from collections.abc import Callable

from schemas.envelope import Event
from schemas.messages import CheckpointPublished, UpdatePlanned
from schemas.outcomes import CheckpointReason, Role
from services.observer.views.levels import Difference, LevelReport
from services.observer.views.source import ArtifactReader, Source

LEVEL = "training"


class NotReproducible(Exception):
    """Raised by `retrain` where this machine cannot give the recorded bits: other CPU kind, threads or version."""


Retrain = Callable[[Event, ArtifactReader], tuple[str, str | None]]
"""(the UpdatePlanned, artifacts) -> digests of the checkpoint and of the trainer's state after it."""


def training_level(source: Source, retrain: Retrain) -> LevelReport:
    """Checkpoints that infrastructure failed were not computed then and are not now.

    Raises: Unreadable where a record cannot be read: run the level `log` first.
    """
    published: dict[tuple[Role, int], Event] = {
        (event.body.role, event.body.checkpoint_version): event
        for event in source.events()
        if isinstance(event.body, CheckpointPublished)
    }
    done, open_updates, failed = 0, 0, 0
    for planned in source.events():
        if not isinstance(planned.body, UpdatePlanned):
            continue
        event = published.get((planned.body.role, planned.body.update))
        if event is None or not isinstance(event.body, CheckpointPublished):
            open_updates += 1
            continue
        if event.body.reason is CheckpointReason.infra_failed:
            failed += 1
            continue
        try:
            found = retrain(planned, source.artifacts)
        except NotReproducible as reason:
            return LevelReport(level=LEVEL, done=done, equal=False, not_reproducible=str(reason))
        if found != (recorded := (event.body.checkpoint, event.body.state)):
            return LevelReport(
                level=LEVEL, done=done, equal=False, first_difference=_difference(event, recorded, found)
            )
        done += 1
    counts = ((open_updates, "planned and not computed"), (failed, "failed by infrastructure and not computed"))
    notes = tuple(f"{count} updates were {why}" for count, why in counts if count)
    return LevelReport(level=LEVEL, done=done, equal=True, notes=notes)


def _difference(event: Event, recorded: tuple[str, str | None], found: tuple[str, str | None]) -> Difference:
    return Difference(
        what="checkpoint",
        seq=event.seq,
        message=event.body.name,
        id=event.id,
        artifact=recorded[0],
        detail=f"checkpoint and state are {recorded[0]} and {recorded[1]}, computed again {found[0]} and {found[1]}",
    )
