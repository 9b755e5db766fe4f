"""Wiring of the solver. Its work is RolloutRequested; it says RolloutCompleted, a group at once."""

import asyncio

from schemas.outcomes import Role
from services.kernel import service
from services.kernel.options import ServiceOptions
from services.kernel.workshop import open_workshop
from services.solver import policy
from services.solver.handler import SolverHandler


async def serve(options: ServiceOptions, stop: asyncio.Event) -> None:
    await service.serve(Role.solver, policy, build, options, stop)


async def build(context: service.Context) -> SolverHandler:
    workshop = await open_workshop(context.options.base, context.options.work, base_digest=context.run.base_digest)
    return SolverHandler(context.artifacts, workshop, context.science.rollout)
