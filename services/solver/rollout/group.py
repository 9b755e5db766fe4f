"""One group: every attempt in its own sandbox, conversations in lockstep, then each graded where its agent is gone."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from schemas.messages import RolloutRequested
from schemas.outcomes import Purpose
from schemas.science import RolloutRules
from services.kernel.agent.conversation import EndReason, Episode, HarnessLimits
from services.kernel.agent.harness import run_group
from services.kernel.agent.model_brain import ModelBrain
from services.kernel.errors import KernelError
from services.kernel.harbor.grade import EnvironmentBroken, Grade
from services.kernel.harbor.health import await_healthy
from services.kernel.harbor.task import HarborTask
from services.kernel.models.protocol import Engine
from services.kernel.models.template import Template
from services.kernel.sandbox.launch import uid_of
from services.kernel.sandbox.protocol import Image, Limits, Pins, Sandbox
from services.kernel.workshop import Workshop
from services.solver.rollout.hints import with_hints

WALL_PER_CPU = 10.0
"""The wall limit catches hangs alone: ten times the CPU limit."""
NORMALISER = "v1"
T = TypeVar("T")


class AttemptFailedError(KernelError):
    """A sandbox failed under an attempt: the whole group is tried again."""

    boundary = "sandbox"
    retry = True


@dataclass(frozen=True)
class Attempt:
    episode: Episode
    grade: Grade | EnvironmentBroken


@dataclass(frozen=True)
class Player:
    """A model with its template, and the rules of its rollouts."""

    engine: Engine
    template: Template
    rules: RolloutRules


async def play(
    workshop: Workshop, player: Player, task: HarborTask, image: Image, request: RolloutRequested
) -> list[Attempt]:
    """All attempts of the request, in order.

    Raises:
        AttemptFailedError, SandboxError: infrastructure; no attempt has a result.
    """
    limits = _limits(task, player.rules)
    user = task.config.agent.user
    pins = Pins(user_uid=uid_of(image, image.user if user is None else str(user)))
    async with AsyncExitStack() as opened:

        async def start() -> Sandbox:
            sandbox = await workshop.backend.start(image, pins=pins, limits=limits.exec)
            opened.push_async_callback(sandbox.close)
            await await_healthy(sandbox, task.config.environment.healthcheck, limits.exec)
            return sandbox

        sandboxes = await _all(start() for _ in range(request.attempts))
        brain = ModelBrain(
            player.engine,
            player.template,
            seed=request.seed,
            temperature=player.rules.temperature,
            new_tokens_max=player.rules.new_tokens_max,
            context_max=player.rules.context_tokens_max,
        )
        instruction = task.instruction
        if request.purpose is Purpose.diagnose:
            instruction = with_hints(task, bytes_max=player.rules.shown_bytes_max)
        instructions = [instruction] * request.attempts
        episodes = await run_group(brain, instructions, sandboxes, limits, normaliser=NORMALISER)
        failed = next((episode.failure for episode in episodes if episode.ended is EndReason.infra_failed), None)
        if failed is not None:
            raise AttemptFailedError(failed)
        return await _grade_all(workshop, task, image, sandboxes, episodes)


async def _grade_all(
    workshop: Workshop, task: HarborTask, image: Image, sandboxes: Sequence[Sandbox], episodes: Sequence[Episode]
) -> list[Attempt]:
    async def grade(sandbox: Sandbox, episode: Episode) -> Attempt:
        left = await workshop.grader.leave(task, sandbox)
        try:
            return Attempt(episode, await workshop.grader.grade(task, image, left.snapshot))
        finally:
            await workshop.backend.drop(left.snapshot)

    return await _all(grade(sandbox, episode) for sandbox, episode in zip(sandboxes, episodes, strict=True))


async def _all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results, in order. Raises the first failure itself, not a group of them, once nothing runs any more."""
    results: list[T] = []
    for each in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(each, BaseException):
            raise each
        results.append(each)
    return results


def _limits(task: HarborTask, rules: RolloutRules) -> HarnessLimits:
    own = task.agent_limits
    cpu_s = min(own.cpu_s, rules.cpu_s)
    bounded = Limits(
        cpu_s=cpu_s,
        wall_s=cpu_s * WALL_PER_CPU,
        memory_bytes_max=own.memory_bytes_max,
        pids_max=own.pids_max,
        disk_bytes_max=own.disk_bytes_max,
        output_bytes_max=own.output_bytes_max,
    )
    return HarnessLimits(turns_max=rules.turns_max, shown_bytes_max=rules.shown_bytes_max, exec=bounded)
