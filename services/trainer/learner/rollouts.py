"""From planned groups to what the update learns from: transcripts read by digest, with the recorded rewards."""

from collections.abc import Sequence

from schemas.parts import PlannedGroup
from services.kernel.agent.transcript import decode_content
from services.kernel.artifacts import ArtifactStore
from services.kernel.models.trajectory import Group, Trajectory


def read_groups(artifacts: ArtifactStore, groups: Sequence[PlannedGroup]) -> list[Group]:
    """In the order of the plan, which holds unmasked members alone.

    Raises:
        ArtifactMissing, ArtifactCorrupt, TranscriptError: a rollout cannot be read as it was recorded.
    """
    return [
        Group(
            trajectories=tuple(
                Trajectory(segments=decode_content(artifacts.get(ref.content)).segments, reward=ref.reward)
                for ref in group.rollouts
            )
        )
        for group in groups
    ]
