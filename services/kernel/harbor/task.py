"""Reads a Harbor task strictly: from its files or its directory, with every problem found.

Four lists come back. `problems`: the task is not well formed. `unsupported`: it is legal, but envwheel cannot run it.
`notes`: what is done otherwise than it asks. `implicit`: limits left to Harbor's defaults; a task that we make writes
them all out.
"""

import posixpath
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from msgspec import Struct

from services.kernel.archive import ArchiveError, FileEntry, check_names, digest, pack, read_tree
from services.kernel.harbor.config import Agent, Environment, Problem, TaskConfig, Verifier, read_config
from services.kernel.harbor.support import COMPOSE, is_separate, notes, unsupported
from services.kernel.sandbox.protocol import Limits

FILES_MAX = 2000
BYTES_MAX = 64 * 2**20
INSTRUCTION_BYTES_MAX = 64 * 1024
WORKDIR = "/app"
CPUS, MEMORY_MB, STORAGE_MB = 1.0, 512, 256
"""What a task gets that names no such limit."""
AGENT_TIMEOUT_S = 600.0
SOLUTION = "solution/solve.sh"
NO_ORACLE = (
    "Harbor runs a task without it, but nothing shows then that the task can be solved: add a reference solution"
)

_CANARY = re.compile(r"^\s*(#|<!--).*canary", re.IGNORECASE)
_BOM = b"\xef\xbb\xbf"
OUT_OF_BOUNDS = ("/tests", "/solution", "/logs/verifier", "/proc", "/sys", "/dev")
"""What no artifact may be, hold or lie in: there it would replace the verifier's own files."""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/etc")
"""What no artifact may be or hold as a whole: the verifier's programs run from there."""


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
        return is_separate(self.config)

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
    notes: tuple[Problem, ...] = ()
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
    task = None if problems else HarborTask(config, instruction, dict(files), digest(pack(files)), has_canary)
    told = tuple(unsupported(files, config)), tuple(notes(files, config)), tuple(implicit)
    return Reading(task, tuple(problems), *told)


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


def limits_of(environment: Environment, timeout_s: float) -> Limits:
    """The task's seconds are CPU seconds here: those are counted, wall time is not."""
    return Limits(
        cpu_s=timeout_s,
        wall_s=10 * timeout_s,
        memory_bytes_max=(environment.memory_mb or MEMORY_MB) * 2**20,
        disk_bytes_max=(environment.storage_mb or STORAGE_MB) * 2**20,
    )


def _file_problems(files: Mapping[str, FileEntry], config: TaskConfig) -> Iterator[Problem]:
    made_from = ("Dockerfile", *COMPOSE)
    has_environment = config.environment.docker_image or any(f"environment/{name}" in files for name in made_from)
    needed = ["task.toml"] if config.steps else ["task.toml", "instruction.md", "tests/test.sh", SOLUTION]
    for step in config.steps or ():
        tests = "tests/test.sh" if "tests/test.sh" in files else f"steps/{step.name}/tests/test.sh"
        needed += [f"steps/{step.name}/instruction.md", tests]
    for name in needed:
        if name not in files:
            yield Problem("missing_file", name, NO_ORACLE if name == SOLUTION else "a Harbor task needs this file")
    if not has_environment:
        yield Problem("missing_file", "environment/Dockerfile", "there is neither this file nor a docker_image")
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
        source, target = (artifact, None) if isinstance(artifact, str) else (artifact.source, artifact.destination)
        if fault := _artifact_fault(source, target or ""):
            yield Problem("value", "artifacts", f"{source!r} {fault}")
    yield from _step_problems(config)


def _artifact_fault(source: str, target: str) -> str | None:
    if ".." in (*source.split("/"), *target.split("/")):
        return "leaves its folder"
    if not source.startswith("/"):
        return "is not an absolute path"
    path = PurePosixPath(posixpath.normpath("/" + source.lstrip("/")))
    if any(path.is_relative_to(place) or PurePosixPath(place).is_relative_to(path) for place in OUT_OF_BOUNDS):
        return "reaches where the verifier's own files are"
    if any(PurePosixPath(place).is_relative_to(path) for place in SYSTEM):
        return "holds the programs that the verifier runs"
    return None


def _step_problems(config: TaskConfig) -> Iterator[Problem]:
    seen: set[str] = set()
    for step in config.steps or ():
        key = unicodedata.normalize("NFC", step.name).casefold()
        if key in seen:
            yield Problem("value", "steps", f"two steps are named {step.name!r} (case does not count)")
        if "/" in step.name or step.name in (".", ".."):
            yield Problem("value", "steps", f"{step.name!r} is not a directory name")
        seen.add(key)
