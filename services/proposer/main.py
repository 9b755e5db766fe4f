"""Wiring of the proposer. Its work is EnvRequested; it says EnvProposed or EnvAbandoned."""

import asyncio

from schemas.outcomes import Role
from services.kernel import service
from services.kernel.options import ServiceOptions
from services.kernel.workshop import workshop_of
from services.proposer import policy
from services.proposer.handler import ProposerHandler


async def serve(options: ServiceOptions, stop: asyncio.Event) -> None:
    await service.serve(Role.proposer, policy, build, options, stop)


async def build(context: service.Context) -> ProposerHandler:
    workshop = await workshop_of(context.options, context.run.base_digest)
    return ProposerHandler(
        log=context.log,
        speaker=context.speaker,
        artifacts=context.artifacts,
        workshop=workshop,
        rules=context.science.proposal,
        work=context.options.work / "sessions",
        endpoints=context.options.endpoints,
    )
