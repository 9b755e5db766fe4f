"""Oracle and no-op over a folder of tasks, by Harbor and by envwheel: each a command of its own, timed from outside."""

import datetime
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.admission_gates import IMAGE_LABEL

HARBOR_HELP = (
    "Harbor 0.26 needs Python 3.12 in an environment of its own: `python3.12 -m venv DIR && DIR/bin/pip install "
    "harbor==0.26.0`, then ENVWHEEL_HARBOR=DIR/bin/harbor"
)
TIMEOUT_S = 900
NO_GRACE = "services:\n  main:\n    stop_grace_period: 0s\n"
"""Harbor's containers sleep as PID 1, deaf to SIGTERM: each trial waits out Compose's 10 s before they are killed."""
ROOT = Path(__file__).parents[1]

Rewards = Mapping[str, tuple[float | None, float | None]]
"""By task: of the reference solution, and of an untouched environment. None: there was none."""


@dataclass(frozen=True)
class Run:
    """One pass over all tasks."""

    wall_s: float
    """Of the command, start of Python included."""
    inside_s: float
    """From the first task's start to the last one's end, as the command itself says."""
    cpu_s: float
    """Of the command and of all that it waited for; on Docker the engine's share is not in it."""
    rewards: Rewards


@dataclass(frozen=True)
class Engine:
    """A Docker engine, and the folder with the client's settings (its `cli-plugins/` holds `docker-compose`)."""

    host: str
    config: Path | None

    def environment(self) -> dict[str, str]:
        return {"DOCKER_HOST": self.host, **({"DOCKER_CONFIG": str(self.config)} if self.config else {})}


def find_harbor() -> str:
    """The executable. Raises FileNotFoundError that says how to get it."""
    named = os.environ.get("ENVWHEEL_HARBOR", "harbor")
    found = shutil.which(named)
    if found is None:
        raise FileNotFoundError(f"no harbor executable {named!r}: {HARBOR_HELP}")
    return found


def run_harbor(
    harbor: str, tasks: Path, jobs_dir: Path, *, at_once: int, engine: Engine | None, as_it_comes: bool = False
) -> Run:
    """Both agents in one job, so that Harbor starts once; set up as fast as it goes unless `as_it_comes`.

    Raises:
        RuntimeError: the command failed or graded less than all.
    """
    jobs_dir.mkdir()
    backend: dict[str, object] = {"import_path": "harbor_environment:BubblewrapEnvironment"}
    if engine is not None:
        backend = {"type": "docker"}
        if not as_it_comes:
            (jobs_dir / "compose.yaml").write_text(NO_GRACE)
            backend["extra_docker_compose"] = [str(jobs_dir / "compose.yaml")]
    config = {
        "job_name": "job",
        "jobs_dir": str(jobs_dir),
        "n_concurrent_trials": at_once,
        "quiet": True,
        "environment": backend,
        "agents": [{"name": "oracle"}, {"name": "nop"}],
        "datasets": [{"path": str(tasks)}],
    }
    (jobs_dir / "config.json").write_text(json.dumps(config))
    argv = [harbor, "run", "-c", str(jobs_dir / "config.json"), "--yes"]
    env = {
        **os.environ,
        **(engine.environment() if engine else {}),
        "PYTHONPATH": str(ROOT / "tests/support"),
        "PYTHONDONTWRITEBYTECODE": "1",
        # Otherwise each start asks the network for a price table.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        # For what it reports it imports a model library at the end of each job: two seconds.
        **({} if as_it_comes else {"HARBOR_TELEMETRY": "0"}),
    }
    output, wall_s, cpu_s = _timed(argv, env)
    rewards: dict[str, dict[str, float | None]] = {}
    for path in sorted((jobs_dir / "job").glob("*/result.json")):
        trial = json.loads(path.read_text())
        if trial["exception_info"] is not None:
            raise RuntimeError(f"Harbor: {path.parent.name}: {trial['exception_info']['exception_message'][:2000]}")
        agent = trial["agent_info"]["name"]
        name = Path(trial["task_id"]["path"]).name
        rewards.setdefault(name, {})[agent] = trial["verifier_result"]["rewards"]["reward"]
    if not rewards:
        raise RuntimeError(f"Harbor graded nothing: {output[-2000:]}")
    job = json.loads((jobs_dir / "job/result.json").read_text())
    began, ended = (datetime.datetime.fromisoformat(job[key]) for key in ("started_at", "finished_at"))
    both = {name: (found.get("oracle"), found.get("nop")) for name, found in rewards.items()}
    return Run(wall_s, (ended - began).total_seconds(), cpu_s, both)


def run_envwheel(tasks: Path, work: Path, holds: Path, *, at_once: int, engine: Engine | None) -> Run:
    """`benchmarks.admission_gates` in a process of its own, with an empty cache in `work`. Raises RuntimeError.

    `holds`: the mark that this machine was found to hold what a sandbox must, as `envwheel env check` keeps one a boot.
    """
    argv = [sys.executable, "-m", "benchmarks.admission_gates", str(tasks), str(work), str(holds)]
    argv += ["--at-once", str(at_once)]
    if engine is not None:
        argv += ["--docker-host", engine.host]
    output, wall_s, cpu_s = _timed(argv, dict(os.environ))
    said = json.loads(output.splitlines()[-1])
    rewards = {name: (oracle, noop) for name, (oracle, noop) in said["rewards"].items()}
    return Run(wall_s, said["inside_s"], cpu_s, rewards)


def remove_images(engine: Engine) -> None:
    """What envwheel built for the benchmark; Harbor removes its images itself. Raises CalledProcessError."""
    call = ["docker", "-H", engine.host, "image"]
    run = partial(subprocess.run, check=True, stdout=subprocess.PIPE, text=True)
    label = "=".join(IMAGE_LABEL)
    ids = set(run([*call, "ls", "--quiet", "--no-trunc", "--filter", f"label={label}"]).stdout.split())
    if ids:
        run([*call, "rm", "--force", *ids])


def _timed(argv: Sequence[str], env: Mapping[str, str]) -> tuple[str, float, float]:
    """What a command printed, its wall seconds, and the CPU seconds of it and of its children."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    ended = subprocess.run(
        argv, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    wall_s, after = time.perf_counter() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode != 0:
        raise RuntimeError(f"{argv[0]}: exit code {ended.returncode}: {(ended.stdout + ended.stderr)[-4000:]}")
    return ended.stdout, wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
