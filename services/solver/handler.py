"""The solver's work: groups of rollouts, answered as one batch of facts with their transcripts stored."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from schemas.envelope import Event, Meta
from schemas.messages import RolloutCompleted, RolloutRequested
from schemas.outcomes import RolloutOutcome
from schemas.parked import masked_rollout
from schemas.parts import Usage
from schemas.science import RolloutRules
from services.kernel.agent.conversation import EndReason, Episode
from services.kernel.agent.transcript import encode
from services.kernel.archive import unpack
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import Answer
from services.kernel.errors import KernelError, Unreadable
from services.kernel.harbor.grade import EnvironmentBroken, Grade
from services.kernel.harbor.task import HarborTask, read_task
from services.kernel.meter import CpuMeter, Watch
from services.kernel.models.checkpoint import Checkpoint
from services.kernel.models.protocol import Engine
from services.kernel.models.template import Template
from services.kernel.workshop import Workshop
from services.solver.rollout.group import NORMALISER, Attempt, Player, play

ENGINES_MAX = 2
TASKS_MAX = 512
CUT = (EndReason.truncated_answer, EndReason.context_overflow, EndReason.turns_max)


class NoTaskError(KernelError):
    """The environment named by a request is no Harbor task."""

    boundary = "task"


Load = Callable[[bytes], tuple[Engine, Template]]
"""Makes the engine that serves a checkpoint, from its archive. Blocks."""


def load_torch(archive: bytes) -> tuple[Engine, Template]:
    """The built-in engine. Raises ModelError."""
    loaded = Checkpoint.from_archive(archive)
    return loaded.engine(), loaded.template


class SolverHandler:
    def __init__(
        self, artifacts: ArtifactStore, workshop: Workshop, rules: RolloutRules, load: Load = load_torch
    ) -> None:
        self._artifacts = artifacts
        self._load = load
        self._workshop = workshop
        self._rules = rules
        self._players: OrderedDict[str, Player] = OrderedDict()
        self._tasks: OrderedDict[str, HarborTask] = OrderedDict()
        self._loading = asyncio.Lock()
        self._meter = CpuMeter()

    async def close(self) -> None:
        await self._workshop.close()

    async def handle(self, event: Event, try_: int) -> Sequence[Answer]:
        request = event.body
        if not isinstance(request, RolloutRequested):
            raise Unreadable(f"{request.name} is no work for the solver")
        watch = Watch()
        async with self._loading:
            player = await asyncio.to_thread(self._player, request.checkpoint)
        task = self._task(request.env)
        image = await self._workshop.builder.build(task)
        attempts = await play(self._workshop, player, task, image, request)
        return await self._answers(request, attempts, watch, deterministic=player.engine.deterministic)

    async def _answers(
        self, request: RolloutRequested, attempts: Sequence[Attempt], watch: Watch, *, deterministic: bool
    ) -> list[Answer]:
        stored = await asyncio.to_thread(self._store, attempts)
        cpu_s, wall_s = self._meter.take() / len(attempts), watch.wall_s()
        answers = []
        for number, (attempt, (content, observation, output)) in enumerate(zip(attempts, stored, strict=True)):
            meta = Meta(
                started_ns=watch.started_ns,
                wall_s=wall_s,
                cpu_s=cpu_s,
                sandbox_cpu_s=attempt.episode.cpu_s,
                observation=observation,
                observations={"verifier": output},
                engine="torch-cpu",
            )
            fact = _fact(request, number, attempt, content)
            answers.append(Answer(fact, meta, deterministic=deterministic and not fact.volatile))
        return answers

    def _store(self, attempts: Sequence[Attempt]) -> list[tuple[str, str, str]]:
        """Digests of content, observation and verifier output of each attempt. Blocks on the disk."""
        artifacts: list[bytes] = []
        for attempt in attempts:
            artifacts += [*encode(attempt.episode, normaliser=NORMALISER), attempt.grade.output]
        digests = self._artifacts.put_many(artifacts)
        return list(zip(digests[::3], digests[1::3], digests[2::3], strict=True))

    def _player(self, checkpoint: str) -> Player:
        """The model of a checkpoint; the newest few stay loaded."""
        if checkpoint not in self._players:
            engine, template = self._load(self._artifacts.get(checkpoint))
            self._players[checkpoint] = Player(engine, template, self._rules)
            while len(self._players) > ENGINES_MAX:
                self._players.popitem(last=False)
        self._players.move_to_end(checkpoint)
        return self._players[checkpoint]

    def _task(self, env: str) -> HarborTask:
        if env not in self._tasks:
            reading = read_task(unpack(self._artifacts.get(env)))
            if reading.task is None:
                raise NoTaskError(f"environment {env}: {reading.problems[0].message}")
            self._tasks[env] = reading.task
            while len(self._tasks) > TASKS_MAX:
                self._tasks.popitem(last=False)
        self._tasks.move_to_end(env)
        return self._tasks[env]


def _fact(request: RolloutRequested, number: int, attempt: Attempt, content: str) -> RolloutCompleted:
    grade = attempt.grade
    if isinstance(grade, EnvironmentBroken):
        return masked_rollout(request, number, "the environment cannot grade even its untouched self", broken=True)
    return RolloutCompleted(
        round=request.round,
        request=request.id,
        attempt=number,
        env=request.env,
        purpose=request.purpose,
        checkpoint_version=request.checkpoint_version,
        outcome=_outcome(attempt.episode, grade),
        reward=grade.reward,
        tests=grade.tests,
        content=content,
        usage=_usage(attempt.episode),
        volatile=attempt.episode.volatile,
        detail=grade.broken_by_agent or "",
    )


def _outcome(episode: Episode, grade: Grade) -> RolloutOutcome:
    if grade.reward == 1.0:
        return RolloutOutcome.solved
    return RolloutOutcome.truncated if episode.ended in CUT else RolloutOutcome.unsolved


def _usage(episode: Episode) -> Usage:
    sampled = episode.sampled_tokens
    tokens = sum(len(segment.token_ids) for segment in episode.segments)
    return Usage(prompt_tokens=tokens - sampled, completion_tokens=sampled, turns=len(episode.turns))
