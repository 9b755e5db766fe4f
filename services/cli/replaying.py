"""What replay needs besides the log: the deciders, the observer's files, and the trainer's arithmetic."""

import os
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from platform import machine

from schemas.envelope import Event
from schemas.identity import digest_of
from schemas.messages import RunStarted, UpdatePlanned
from schemas.outcomes import Role
from schemas.topology import DECIDERS
from services.cli.folder import RunFolder
from services.kernel.artifacts import ArtifactStore
from services.kernel.decider import Policy
from services.observer.views.replay import Means
from services.observer.views.source import ArtifactReader, Source
from services.observer.views.training_level import NotReproducible, Retrain

_VECTORS = (("avx512", {"avx512f", "avx512bw", "avx512vl", "avx512dq"}), ("avx2", {"avx2", "fma"}))
DATABASE, SNAPSHOT, TRACES = "views.duckdb", "snapshot.duckdb", "traces"


def means_of(source: Source, views: Path | None, *, live: bool = False, root: str | None = None) -> Means:
    """`views`: the observer's folder; while it runs only its snapshot can be read."""
    database = None if views is None else views / (SNAPSHOT if live else DATABASE)
    traces = None if views is None else views / TRACES
    return Means(root=root, database=database, traces=traces, policies=policies(), retrain=retrain_of(source))


def policies() -> dict[Role, Policy[object]]:
    return {role: import_module(f"services.{role.value}.policy") for role in DECIDERS}


def retrain_of(source: Source) -> Retrain:
    """Computes an update again, with the settings of the run, and stores nothing."""
    began = next((event for event in source.events() if isinstance(event.body, RunStarted)), None)

    def retrain(planned: Event, artifacts: ArtifactReader) -> tuple[str, str | None]:
        from services.kernel.models.engine import one_thread
        from services.trainer.handler import TrainerHandler

        if began is None or not isinstance(began.body, RunStarted) or not isinstance(planned.body, UpdatePlanned):
            raise NotReproducible("the log does not begin with RunStarted")
        if began.meta.engine is not None and began.meta.engine != engine_here():
            raise NotReproducible(f"the run was computed by {began.meta.engine}, here is {engine_here()}")
        one_thread()
        science = began.body.science
        store = _Unwritten(artifacts)
        done = TrainerHandler(store, science.training, science.rollout.temperature).update(planned.body)
        return done.checkpoint, done.state

    return retrain


def engine_here() -> str:
    """What equal bits rest on: torch's version, the kind of CPU that its kernels choose by, and one thread."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text().partition("\nflags")[2].partition("\n")[0].split())
    except OSError:
        flags = set()
    vector = next((name for name, needed in _VECTORS if needed <= flags), "plain")
    return f"torch {version('torch')}, {machine()} {vector}, 1 thread"


def views_of(folder: RunFolder) -> Path | None:
    """The observer's folder, where this user may read it."""
    return folder.views if os.access(folder.views, os.R_OK | os.X_OK) else None


class _Unwritten(ArtifactStore):
    """Reads from where replay reads, names what is put, and keeps none of it."""

    def __init__(self, source: ArtifactReader) -> None:
        super().__init__(Path(os.devnull))
        self._source = source

    def get(self, digest: str) -> bytes:
        return self._source.get(digest)

    def put_many(self, items: list[bytes]) -> list[str]:  # type: ignore[override]  # callers give lists
        return [digest_of(data) for data in items]
