"""Wiring of the solver. Its work is RolloutRequested; it says RolloutCompleted, a group at once."""

import asyncio

from schemas.outcomes import Role
from services.kernel import service
from services.kernel.options import ServiceOptions
from services.kernel.workshop import workshop_of
from services.solver import policy
from services.solver.handler import SolverHandler


async def serve(options: ServiceOptions, stop: asyncio.Event) -> None:
    await service.serve(Role.solver, policy, build, options, stop)


async def build(context: service.Context) -> SolverHandler:
    workshop = await workshop_of(context.options, context.run.base_digest)
    return SolverHandler(context.artifacts, workshop, context.science.rollout)
