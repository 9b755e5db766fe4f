"""Reads a Harbor task strictly: from its files or its directory, with every problem found.

Three lists come back. `problems`: the task is not well formed. `unsupported`: it is legal, but only a container engine
can run it. `implicit`: limits left to Harbor's defaults; a task that we make writes them all out.
"""

import posixpath
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from services.kernel.archive import ArchiveError, FileEntry, check_names, digest, pack, read_tree
from services.kernel.harbor.config import Agent, Artifact, Environment, Problem, TaskConfig, Verifier, read_config
from services.kernel.sandbox.protocol import Limits

FILES_MAX = 2000
BYTES_MAX = 64 * 2**20
INSTRUCTION_BYTES_MAX = 64 * 1024
WORKDIR = "/app"
CPUS, MEMORY_MB, STORAGE_MB = 1.0, 512, 256
"""What a task gets that names no such limit."""
AGENT_TIMEOUT_S = 600.0

_CANARY = re.compile(r"^\s*(#|<!--).*canary", re.IGNORECASE)
_TEMPLATE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}")
_BOM = b"\xef\xbb\xbf"
DOCKER = "needs the docker backend"


class HarborTask(Struct, frozen=True):
    """A well-formed task: its config, the instruction as an agent sees it, and all its files."""

    config: TaskConfig
    instruction: str
    files: dict[str, FileEntry]
    digest: str
    """sha256 of the canonical archive of `files`."""
    has_canary: bool = False
    """The instruction began with a benchmark's canary: never train on it."""

    def part(self, folder: str) -> dict[str, FileEntry]:
        """Files below `folder`, by their path from there."""
        return {name[len(folder) + 1 :]: entry for name, entry in self.files.items() if name.startswith(folder + "/")}

    @property
    def separate(self) -> bool:
        """Graded in a sandbox of its own, which only declared artifacts reach."""
        verifier = self.config.verifier
        return (verifier.environment_mode or ("separate" if verifier.environment else "shared")) == "separate"

    @property
    def has_verifier_image(self) -> bool:
        """The verifier has an image with the tests in it; else it is the environment's, and tests are added."""
        own = self.config.verifier.environment
        return self.separate and bool((own and own.docker_image) or "tests/Dockerfile" in self.files)

    @property
    def verifier_environment(self) -> Environment:
        """What configures the sandbox that grades."""
        return (self.separate and self.config.verifier.environment) or self.config.environment

    @property
    def build_limits(self) -> Limits:
        return limits_of(self.config.environment, self.config.environment.build_timeout_sec)

    @property
    def agent_limits(self) -> Limits:
        return limits_of(self.config.environment, self.config.agent.timeout_sec or AGENT_TIMEOUT_S)

    @property
    def verifier_limits(self) -> Limits:
        return limits_of(self.verifier_environment, self.config.verifier.timeout_sec)


class Reading(Struct, frozen=True):
    """What was found. `task` is there if and only if there are no problems."""

    task: HarborTask | None
    problems: tuple[Problem, ...]
    unsupported: tuple[Problem, ...] = ()
    implicit: tuple[Problem, ...] = ()


def read_task_dir(root: Path) -> Reading:
    """As `read_task`; links, special files and odd names anywhere below `root` are a problem, never followed."""
    try:
        return read_task(read_tree(root, files_max=FILES_MAX, bytes_max=BYTES_MAX))
    except (ArchiveError, OSError) as error:
        return Reading(None, (Problem("tree", str(root), str(error)),))


def read_task(files: Mapping[str, FileEntry]) -> Reading:
    """Reads the files of one task directory, given by relative path."""
    try:
        check_names(files)
    except ArchiveError as error:
        return Reading(None, (Problem("tree", "", str(error)),))
    if len(files) > FILES_MAX or sum(len(entry.content) for entry in files.values()) > BYTES_MAX:
        return Reading(None, (Problem("size", "", f"more than {FILES_MAX} files or {BYTES_MAX} bytes"),))
    toml = files.get("task.toml")
    config, problems, implicit = read_config(toml.content) if toml else (TaskConfig(), [], [])
    problems += _file_problems(files, config)
    problems += _config_problems(config)
    instruction, has_canary = "", False
    if "instruction.md" in files:
        instruction, has_canary, found = read_instruction(files["instruction.md"].content, "instruction.md")
        problems += found
    unsupported = tuple(_unsupported(files, config))
    if problems:
        return Reading(None, tuple(problems), unsupported, tuple(implicit))
    task = HarborTask(config, instruction, dict(files), digest(pack(files)), has_canary)
    return Reading(task, (), unsupported, tuple(implicit))


def read_instruction(raw: bytes, where: str) -> tuple[str, bool, list[Problem]]:
    """The text an agent sees (LF, no leading canary lines), whether there was a canary, and the problems."""
    if len(raw) > INSTRUCTION_BYTES_MAX:
        return "", False, [Problem("instruction", where, f"{len(raw)} bytes, more than {INSTRUCTION_BYTES_MAX}")]
    try:
        text = raw.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        return "", False, [Problem("instruction", where, f"not UTF-8: {error}")]
    hidden = sorted(
        {hex(ord(letter)) for letter in text if letter not in "\n\t" and unicodedata.category(letter) == "Cc"}
    )
    problems = [Problem("instruction", where, f"holds control characters {', '.join(hidden)}")] if hidden else []
    if text.startswith("\ufeff"):
        problems.append(Problem("instruction", where, "begins with a byte order mark"))
    lines = text.split("\n")
    skipped = 0
    while skipped < len(lines) and _CANARY.match(lines[skipped]):
        skipped += 1
    text = "\n".join(lines[skipped:]).lstrip("\n") if skipped else text
    if not text.strip():
        problems.append(Problem("instruction", where, "is empty: there is nothing to ask"))
    return text, skipped > 0, problems


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


def limits_of(environment: Environment, timeout_s: float) -> Limits:
    """The task's seconds are CPU seconds here: those are counted, wall time is not."""
    return Limits(
        cpu_s=timeout_s,
        wall_s=10 * timeout_s,
        memory_bytes_max=(environment.memory_mb or MEMORY_MB) * 2**20,
        disk_bytes_max=(environment.storage_mb or STORAGE_MB) * 2**20,
    )


def _file_problems(files: Mapping[str, FileEntry], config: TaskConfig) -> Iterator[Problem]:
    has_environment = any(name.startswith("environment/") for name in files) or config.environment.docker_image
    needed = ["task.toml"] if config.steps else ["task.toml", "instruction.md", "tests/test.sh", "solution/solve.sh"]
    for step in config.steps or ():
        tests = "tests/test.sh" if "tests/test.sh" in files else f"steps/{step.name}/tests/test.sh"
        needed += [f"steps/{step.name}/instruction.md", tests]
    for name in needed:
        if name not in files:
            yield Problem("missing_file", name, "a Harbor task needs this file")
    if not has_environment:
        yield Problem("missing_file", "environment/Dockerfile", "there is neither an environment nor a docker_image")
    for name, entry in files.items():
        # Fixtures in environment/ may hold any bytes: a script to be mended is a fair task.
        if not ((name.endswith(".sh") and not name.startswith("environment/")) or name.endswith("/Dockerfile")):
            continue
        if entry.content.startswith(_BOM):
            yield Problem("byte_order_mark", name, "begins with a byte order mark: its first line cannot be read")
        if b"\r" in entry.content:
            yield Problem("carriage_return", name, "holds CR: bash reads it as part of a word; write LF only")
        if b"\0" in entry.content:
            yield Problem("nul", name, "holds NUL bytes: not a text file")


def _config_problems(config: TaskConfig) -> Iterator[Problem]:
    places: list[tuple[str, Agent | Verifier | Environment]] = [
        ("agent", config.agent),
        ("verifier", config.verifier),
        ("environment", config.environment),
    ]
    for where, section in places:
        if section.allowed_hosts and section.network_mode != "allowlist":
            yield Problem("value", f"{where}.allowed_hosts", 'has a meaning only with network_mode = "allowlist"')
        if section.network_mode == "allowlist" and not section.allowed_hosts:
            yield Problem("value", f"{where}.allowed_hosts", "an allowlist without hosts: write no-network")
    if config.task and ".." in config.task.name:
        yield Problem("value", "task.name", "must not hold '..'")
    for part in (config.environment.workdir or "").split("/"):
        if part in (".", ".."):
            yield Problem("value", "environment.workdir", "must not hold '.' or '..' parts")
    if config.verifier.environment_mode == "shared" and config.verifier.environment:
        yield Problem("value", "verifier.environment", 'contradicts environment_mode = "shared"')
    for artifact in config.artifacts:
        paths = [artifact] if isinstance(artifact, str) else [artifact.source, artifact.destination or ""]
        if any(".." in path.split("/") for path in paths):
            yield Problem("value", "artifacts", f"{paths[0]!r} leaves its folder")
    yield from _step_problems(config)


def _step_problems(config: TaskConfig) -> Iterator[Problem]:
    seen: set[str] = set()
    for step in config.steps or ():
        key = unicodedata.normalize("NFC", step.name).casefold()
        if key in seen:
            yield Problem("value", "steps", f"two steps are named {step.name!r} (case does not count)")
        if "/" in step.name or step.name in (".", ".."):
            yield Problem("value", "steps", f"{step.name!r} is not a directory name")
        seen.add(key)


def _unsupported(files: Mapping[str, FileEntry], config: TaskConfig) -> Iterator[Problem]:
    environment, verifier = config.environment, config.verifier
    separate = verifier.environment_mode == "separate" or verifier.environment is not None
    open_phases = [
        name
        for name, section in (("agent", config.agent), ("verifier", verifier))
        if (section.network_mode or environment.network_mode) != "no-network"
    ]
    services = [each.service for each in config.artifacts if isinstance(each, Artifact)]
    found = {
        "environment.os": environment.os != "linux",
        "environment.gpus": bool(environment.gpus or environment.gpu_types or environment.tpu),
        "environment.mcp_servers": bool(environment.mcp_servers),
        "environment.skills_dir": environment.skills_dir is not None,
        "environment.healthcheck": environment.healthcheck is not None,
        "environment.network_mode": bool(open_phases),
        "verifier.environment": separate,
        "verifier.collect": bool(verifier.collect),
        "artifacts.service": any(service not in (None, "main") for service in services),
        "steps": bool(config.steps),
    }
    for name in files:
        folder, base = posixpath.split(name)
        if base in ("docker-compose.yaml", "docker-compose.yml") and folder in ("environment", "tests"):
            found[name] = True
        found |= {name: True} if name in ("tests/Dockerfile", ".harborignore", "environment/.dockerignore") else {}
    for where, is_there in found.items():
        if is_there:
            yield Problem("docker", where, DOCKER)
    for where, env in (
        ("environment.env", environment.env),
        ("verifier.env", verifier.env),
        ("solution.env", config.solution.env),
    ):
        try:
            resolve_env(env)
        except KeyError as error:
            yield Problem(
                "host_env", where, f"takes {error.args[0]} from the host, which is never done here; give a default"
            )
