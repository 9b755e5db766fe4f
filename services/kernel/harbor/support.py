"""What of a legal task is not done here (`unsupported`), and what is done otherwise than asked (`notes`)."""

import posixpath
import re
from collections.abc import Iterator, Mapping

from services.kernel.archive import FileEntry
from services.kernel.harbor.config import Artifact, Environment, Problem, TaskConfig

COMPOSE = ("docker-compose.yaml", "docker-compose.yml")
MAIN = ("main", None)
"""Names of the one service that a task without compose has."""

_TEMPLATE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}")


def is_separate(config: TaskConfig) -> bool:
    """The verifier has a sandbox of its own. Harbor: said, or else implied by [verifier.environment]."""
    verifier = config.verifier
    return (verifier.environment_mode or ("separate" if verifier.environment else "shared")) == "separate"


def resolve_env(env: Mapping[str, str]) -> dict[str, str]:
    """Values with `${NAME:-default}` replaced by the default: nothing is ever taken from the host.

    Raises:
        KeyError: a `${NAME}` without a default.
    """

    def default(match: re.Match[str]) -> str:
        if match[2] is None:
            raise KeyError(match[1])
        return match[3] or ""

    return {name: _TEMPLATE.sub(default, value) for name, value in env.items()}


def unsupported(files: Mapping[str, FileEntry], config: TaskConfig) -> Iterator[Problem]:
    """Each thing that keeps envwheel from running the task at all, with what its author can do."""
    if config.steps:
        yield _no("steps", "a task of several steps is not graded here: make a task of each step")
    yield from _sandboxes(config)
    folders = ("environment", "tests") if is_separate(config) else ("environment",)
    for name in files:
        folder, base = posixpath.split(name)
        if folder in folders and base in COMPOSE:
            yield _no(name, "compose tasks need several containers, which envwheel does not run: use one Dockerfile")
        if base == ".harborignore" and name.startswith(("tests/", "solution/")):
            yield _no(name, "ignore rules for tests and solution are not applied here: leave out what they name")
    services = {artifact.service for artifact in config.artifacts if isinstance(artifact, Artifact)}
    services |= {hook.service for hook in config.verifier.collect}
    for service in sorted(str(each) for each in services if each not in MAIN):
        yield _no("artifacts", f"service {service!r} belongs to a compose task, which envwheel does not run")
    for where, env in _environs(config):
        try:
            resolve_env(env)
        except KeyError as error:
            yield Problem("host_env", where, f"takes {error.args[0]} from the host: give it a default")


def notes(files: Mapping[str, FileEntry], config: TaskConfig) -> Iterator[Problem]:
    """What is done otherwise than asked. The task may well work all the same."""
    phases = (("agent", config.agent, config.environment), ("verifier", config.verifier, _verifying(config)))
    for name, phase, environment in phases:
        mode = phase.network_mode or environment.network_mode
        if mode != "no-network":
            yield Problem("network", name, f"asks for network ({mode}), none is given: it runs offline")
    if config.environment.skills_dir:
        yield Problem("skills", "environment.skills_dir", "agents are given no skills")
    if config.environment.mcp_servers:
        yield Problem("mcp", "environment.mcp_servers", "agents are connected to no MCP server")
    if ".harborignore" in files:
        yield Problem("ignored", ".harborignore", "has no effect at the root of a task, in Harbor neither")


def _sandboxes(config: TaskConfig) -> Iterator[Problem]:
    places = {"environment": config.environment}
    if is_separate(config) and config.verifier.environment:
        places["verifier.environment"] = config.verifier.environment
    for where, environment in places.items():
        if environment.os != "linux":
            yield _no(f"{where}.os", f"{environment.os} tasks need {environment.os} containers, which envwheel lacks")
        if environment.gpus or environment.gpu_types:
            yield _no(f"{where}.gpus", "sandboxes are given no GPU: a task that can do without sets gpus = 0")
        if environment.tpu:
            yield _no(f"{where}.tpu", "sandboxes are given no TPU")


def _environs(config: TaskConfig) -> Iterator[tuple[str, Mapping[str, str]]]:
    yield "environment.env", config.environment.env
    yield "verifier.env", config.verifier.env
    if is_separate(config) and config.verifier.environment:
        yield "verifier.environment.env", config.verifier.environment.env
    yield "solution.env", config.solution.env


def _verifying(config: TaskConfig) -> Environment:
    return (is_separate(config) and config.verifier.environment) or config.environment


def _no(where: str, message: str) -> Problem:
    return Problem("unsupported", where, message)
