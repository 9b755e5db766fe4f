"""Environments that the operator brought, on their way to be parents of assignments. From the log."""

from dataclasses import dataclass, field

from schemas.identity import derive_seed
from schemas.messages import (
    EnvImported,
    EnvRecalled,
    EnvRechecked,
    Message,
    RolloutCompleted,
    RolloutRequested,
    RunStarted,
)
from schemas.outcomes import Purpose, Verdict


@dataclass
class SeedBook:
    """An import is put through the gates, then tried by the solver; with that it is a parent, and no pool member."""

    checking: dict[int, str] = field(default_factory=dict)
    """Environment by ordinal of its import."""
    untried: dict[int, str] = field(default_factory=dict)
    """Valid ones that the solver has not been asked to try yet."""
    trying: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Environment, and attempts without an answer, by the id of the request."""
    ready: list[str] = field(default_factory=list)
    trajectories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Artifacts with attempts of others, by environment."""

    @property
    def waiting(self) -> bool:
        """Plans wait for imports that stand before them on the log, so that no order of arrival decides on parents."""
        return bool(self.checking or self.untried or self.trying)

    def fold(self, id_: str, body: Message) -> None:
        match body:
            case EnvImported():
                self.checking[body.ordinal] = body.env
                if isinstance(body.trajectories, tuple):
                    self.trajectories[body.env] = body.trajectories
            case EnvRechecked():
                self._checked(body)
            case EnvRecalled():
                self._drop(body.env)
            case RolloutRequested(purpose=Purpose.review) if self.untried.get(body.ordinal - 1) == body.env:
                del self.untried[body.ordinal - 1]
                self.trying[id_] = (body.env, body.attempts)
            case RolloutCompleted() if body.request in self.trying:
                self._tried(body)
            case _:
                pass

    def ask(self, run: RunStarted | None, checkpoint: tuple[int, str]) -> list[RolloutRequested]:
        """The trials that are due: valid imports are tried by the newest checkpoint, so that an assignment can say what
        the solver does on them. They belong to round 0, as imports do, whenever they come: so no later round's digest
        depends on when.
        """
        if run is None or not checkpoint[1]:
            return []
        said = [
            RolloutRequested(
                env=env,
                checkpoint_version=checkpoint[0],
                checkpoint=checkpoint[1],
                purpose=Purpose.review,
                attempts=run.science.pool.review_attempts,
                seed=derive_seed(run.seed, "seed", env),
                # Reviews of pool members have ordinal 0.
                ordinal=ordinal + 1,
            )
            for ordinal, env in sorted(self.untried.items())
        ]
        for request in said:
            self.fold(request.id, request)
        return said

    def _checked(self, body: EnvRechecked) -> None:
        ours = self.checking.get(body.ordinal) == body.env
        if ours:
            del self.checking[body.ordinal]
        if body.verdict is Verdict.invalid:
            self._drop(body.env)
        elif ours and body.verdict is Verdict.valid:
            self.untried[body.ordinal] = body.env

    def _tried(self, body: RolloutCompleted) -> None:
        env, missing = self.trying.pop(body.request)
        if missing > 1:
            self.trying[body.request] = (env, missing - 1)
        elif env not in self.ready:
            self.ready.append(env)
            self.ready.sort()

    def _drop(self, env: str) -> None:
        if env in self.ready:
            self.ready.remove(env)
