"""Wiring of the trainer. It hears RunStarted and UpdatePlanned as work, and says CheckpointPublished."""

import asyncio

from schemas.outcomes import Role
from services.kernel.options import ServiceOptions
from services.kernel.service import Context
from services.kernel.service import serve as serve_role
from services.trainer import policy
from services.trainer.handler import TrainerHandler


async def serve(options: ServiceOptions, stop: asyncio.Event) -> None:
    await serve_role(Role.trainer, policy, build, options, stop)


async def build(context: Context) -> TrainerHandler:
    return TrainerHandler(context.artifacts, context.science.training, context.science.rollout.temperature)
