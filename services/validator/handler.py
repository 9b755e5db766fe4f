"""The validator's work: send environments and drafts through the gates."""

import asyncio
from collections.abc import Sequence

from schemas.envelope import Event, Meta
from schemas.identity import event_id
from schemas.messages import (
    DraftChecked,
    DraftCheckRequested,
    EnvImported,
    EnvProposed,
    EnvRechecked,
    EnvRecheckRequested,
    EnvValidated,
    Message,
    PoolChanged,
)
from schemas.outcomes import Verdict
from schemas.parts import GateResult
from schemas.science import Science
from schemas.subjects import Subject
from services.kernel.archive import unpack
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import Answer, read_event
from services.kernel.errors import Unreadable
from services.kernel.heldout.grams import Grams
from services.kernel.log import EventLog
from services.kernel.meter import CpuMeter, Watch, spending
from services.kernel.workshop import Workshop
from services.validator.gates.gate import Case, Finding, Gate
from services.validator.gates.likeness import sketch_of
from services.validator.gates.run import DRAFT_GATES, GATES, run_gates

HIDDEN_DETAIL = "this gate shows no evidence for drafts"


class ValidatorHandler:
    def __init__(
        self,
        *,
        run: str,
        log: EventLog,
        artifacts: ArtifactStore,
        workshop: Workshop,
        grams: Grams,
        science: Science,
    ) -> None:
        self._run = run
        self._log = log
        self._artifacts = artifacts
        self._workshop = workshop
        self._grams = grams
        self._science = science
        self._sketches: dict[str, str] = {}
        self._meter = CpuMeter()

    async def close(self) -> None:
        await self._workshop.close()

    async def handle(self, event: Event, try_: int) -> Sequence[Answer]:
        watch = Watch()
        observations: dict[str, str] = {}
        with spending() as spent:
            answer = await self._answer(event.body, observations)
        meta = Meta(
            started_ns=watch.started_ns,
            wall_s=watch.wall_s(),
            cpu_s=self._meter.take(),
            sandbox_cpu_s=spent.cpu_s,
            observations=observations,
        )
        # The environment's own programs decide: a flaky one may end otherwise the next time, which is no bug of ours.
        return [Answer(answer, meta, deterministic=False)]

    async def _answer(self, work: Message, observations: dict[str, str]) -> Message:
        match work:
            case EnvProposed() as body:
                case = await self._case(body.env, body.pool_version, body.parent)
                verdict, gates = await self._judge(case, GATES, observations)
                return EnvValidated(
                    round=body.round,
                    slot=body.slot,
                    revision=body.revision,
                    env=body.env,
                    verdict=verdict,
                    gates=gates,
                    sketch=case.sketch,
                )
            case DraftCheckRequested() as body:
                verdict, gates = await self._judge(
                    await self._case(body.draft, body.pool_version), DRAFT_GATES, observations, draft=True
                )
                return DraftChecked(
                    round=body.round,
                    slot=body.slot,
                    revision=body.revision,
                    draft=body.draft,
                    verdict=verdict,
                    gates=gates,
                )
            case EnvImported() | EnvRecheckRequested() as body:
                verdict, gates = await self._judge(await self._case(body.env, 0), GATES, observations)
                return EnvRechecked(round=body.round, env=body.env, ordinal=body.ordinal, verdict=verdict, gates=gates)
            case _:
                raise Unreadable(f"{work.name} is no work for the validator")

    async def _judge(
        self, case: Case, gates: Sequence[Gate], observations: dict[str, str], *, draft: bool = False
    ) -> tuple[Verdict, tuple[GateResult, ...]]:
        report = await run_gates(case, gates)
        results = [
            await asyncio.to_thread(self._kept, gate, finding, observations, draft=draft)
            for gate, finding in report.findings
        ]
        return report.verdict, tuple(results)

    def _kept(self, gate: Gate, finding: Finding, observations: dict[str, str], *, draft: bool) -> GateResult:
        """The result with its evidence stored; of a hidden gate a draft learns the outcome alone."""
        if draft and gate.hidden:
            return GateResult(gate=gate.name, outcome=finding.outcome, detail=HIDDEN_DETAIL)
        content, observed = self._artifacts.put_many([finding.content_bytes(), finding.observed_bytes()])
        if finding.observed:
            observations[gate.name] = observed
        return GateResult(
            gate=gate.name,
            outcome=finding.outcome,
            detail=finding.detail,
            evidence=content if finding.content else None,
        )

    async def _case(self, env: str, pool_version: int, parent: str | None = None) -> Case:
        """`parent` may be an import, which is in no pool: a copy of it is a duplicate all the same."""
        parents = {parent: self._sketch(parent)} if parent is not None else {}
        return Case(
            digest=env,
            archive=self._artifacts.get(env),
            workshop=self._workshop,
            grams=self._grams,
            pool=await self._pool(pool_version) | parents,
            duplicate_similarity=self._science.pool.duplicate_similarity,
            rules=self._science.gates,
        )

    async def _pool(self, version: int) -> dict[str, str]:
        """Sketches of the members of the pool version that the work message names."""
        if version == 0:
            return {}
        id_ = event_id(PoolChanged.name, (version,))
        stored = await self._log.get(str(Subject(self._run, PoolChanged.name, version - 1, "-", id_)))
        body = read_event(self._run, stored).body if stored is not None else None
        if not isinstance(body, PoolChanged):
            raise Unreadable(f"pool version {version} is not in the log")
        return {env: self._sketch(env) for env in body.members}

    def _sketch(self, env: str) -> str:
        if env not in self._sketches:
            self._sketches[env] = sketch_of(unpack(self._artifacts.get(env)))
        return self._sketches[env]
