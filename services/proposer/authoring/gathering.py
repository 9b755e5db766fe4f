"""What a request names becomes a workspace; nothing else is read."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import UNSET

from schemas.messages import EnvRequested, RolloutCompleted
from schemas.outcomes import Purpose
from schemas.parts import CitedRollout
from schemas.topology import HIDDEN_FROM_PROPOSER
from services.kernel.agent.normaliser import clip, normalise_v1
from services.kernel.agent.transcript import decode_content
from services.kernel.archive import FileEntry, unpack
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import read_event
from services.kernel.log import EventLog
from services.proposer.authoring.workspace import TOOLS, RolloutNote, Workspace, memory_of

LANES = tuple(purpose.value for purpose in Purpose if purpose.value not in HIDDEN_FROM_PROPOSER)
VERIFIER = "verifier"
"""Name under which a rollout's record holds what its verifier printed."""
VERIFIER_BYTES_MAX = 32 * 1024


async def gather(request: EnvRequested, log: EventLog, run: str, artifacts: ArtifactStore) -> Workspace:
    """Raises ArtifactError where something that the log names is not there."""
    order = request.assignment
    lasting = memory_of([unpack(artifacts.get(delta)) for delta in request.memory])
    diagnosis = request.evidence.diagnosis if request.evidence else UNSET
    cited = [*order.rollouts, diagnosis] if isinstance(diagnosis, CitedRollout) else order.rollouts
    printed = await _verifier_outputs(cited, log, run)
    notes = [_note(rollout, printed.get(rollout.id), artifacts) for rollout in cited]
    return Workspace(
        assignment=assignment_of(request),
        parent=_tree(order.parent, artifacts),
        previous=_tree(request.evidence.env if request.evidence else None, artifacts),
        diagnosis=notes[-1] if len(notes) > len(order.rollouts) else None,
        rollouts=notes[: len(order.rollouts)],
        trajectories=[artifacts.get(each) for each in order.trajectories or ()],
        memory={path: entry for path, entry in lasting.items() if not path.startswith(TOOLS)},
        tools={path.removeprefix(TOOLS): entry for path, entry in lasting.items() if path.startswith(TOOLS)},
        past=[unpack(artifacts.get(env)) for env in order.past],
    )


def assignment_of(request: EnvRequested) -> Mapping[str, Any]:
    """assignment.json: the order, and for a revision the evidence that it answers."""
    order = request.assignment
    told: dict[str, Any] = {
        "round": request.round,
        "slot": request.slot,
        "revision": request.revision,
        "direction": order.direction.value,
        "domain": order.domain,
        "seed": order.seed,
        "parent": order.parent,
        "pass_rate": order.pass_rate,
        "commonest_failure": order.commonest_failure,
    }
    if request.evidence is not None:
        told["evidence"] = msgspec.to_builtins(request.evidence)
    return told


def _tree(env: str | None, artifacts: ArtifactStore) -> dict[str, FileEntry] | None:
    return None if env is None else unpack(artifacts.get(env))


def _note(rollout: CitedRollout, printed: str | None, artifacts: ArtifactStore) -> RolloutNote:
    raw = artifacts.get(rollout.content)
    commands = [turn.command for turn in decode_content(raw).turns]
    verifier = None if printed is None else readable(artifacts.get(printed))
    return RolloutNote(rollout.reward, rollout.tests, commands, raw, verifier)


def readable(printed: bytes) -> bytes:
    """What a verifier printed, fit for an author: text without escapes, bounded."""
    return clip(normalise_v1(printed), VERIFIER_BYTES_MAX).encode()


async def _verifier_outputs(rollouts: Sequence[CitedRollout], log: EventLog, run: str) -> dict[str, str]:
    """Digests by rollout id. They were observed, so an assignment cannot carry them."""
    subjects = tuple(f"{run}.{RolloutCompleted.name}.*.{lane}.{each.id}" for each in rollouts for lane in LANES)
    found: dict[str, str] = {}
    if subjects:
        async with aclosing(log.read(0, subjects)) as records:
            async for stored in records:
                event = read_event(run, stored)
                if VERIFIER in event.meta.observations:
                    found[event.id] = event.meta.observations[VERIFIER]
    return found
