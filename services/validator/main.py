"""Wiring of the validator. Work: proposals, drafts, rechecks. It says verdicts, calibrations and the pool."""

import asyncio

from schemas.outcomes import Role
from services.kernel import service
from services.kernel.heldout.grams import read_grams
from services.kernel.options import ServiceOptions
from services.kernel.workshop import workshop_of
from services.validator import policy
from services.validator.handler import ValidatorHandler


async def serve(options: ServiceOptions, stop: asyncio.Event) -> None:
    await service.serve(Role.validator, policy, build, options, stop)


async def build(context: service.Context) -> ValidatorHandler:
    workshop = await workshop_of(context.options, context.run.base_digest)
    grams = context.run.heldout_grams
    return ValidatorHandler(
        run=context.options.run,
        log=context.log,
        artifacts=context.artifacts,
        workshop=workshop,
        grams=read_grams(context.artifacts.get(grams)) if grams else {},
        science=context.science,
    )
