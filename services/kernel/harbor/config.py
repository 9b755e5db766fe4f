"""`task.toml` of Harbor's schema 1.4 as types, read strictly: every fault is reported, not only the first.

Facts about the format: Harbor 0.25 and 0.26 (equal schemas). Harbor ignores unknown keys and takes zero, negative and
non-finite limits; here they are problems.
"""

import math
import tomllib
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

TOML_BYTES_MAX = 64 * 1024

NetworkMode = Literal["no-network", "public", "allowlist"]
Seconds = Annotated[float, Meta(gt=0, le=1e6)]
Megabytes = Annotated[int, Meta(gt=0, le=2**24)]
Name = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
UserName = Annotated[str, Meta(max_length=32, pattern=r"^[a-z_][a-z0-9_-]*\Z")]
User = Annotated[int, Meta(ge=0, le=65_534)] | UserName
AbsolutePath = Annotated[str, Meta(max_length=1024, pattern=r"^/([^/\x00-\x1f\x7f]+(/[^/\x00-\x1f\x7f]+)*)?\Z")]
Environ = dict[Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z")], Annotated[str, Meta(pattern=r"^[^\x00]*\Z")]]


class Problem(Struct, frozen=True):
    """One thing that is wrong: a stable code, the file or key, and what to do."""

    code: str
    where: str
    message: str


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of task.toml. Absent keys take Harbor 0.26's defaults."""


S = TypeVar("S", bound=Section)


class Author(Section, frozen=True, kw_only=True):
    name: str
    email: str | None = None


class Package(Section, frozen=True, kw_only=True):
    name: Annotated[str, Meta(max_length=255, pattern=r"^[a-zA-Z0-9][A-Za-z0-9_.-]*/[a-zA-Z0-9][A-Za-z0-9_.-]*\Z")]
    version: Annotated[str, Meta(min_length=1)] | None = None
    description: str = ""
    authors: list[Author] = []
    keywords: list[str] = []


class Healthcheck(Section, frozen=True, kw_only=True):
    command: Annotated[str, Meta(min_length=1)]
    interval_sec: Seconds = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: Annotated[float, Meta(ge=0)] = 0.0
    start_interval_sec: Seconds = 5.0
    retries: Annotated[int, Meta(ge=1)] = 3


class Tpu(Section, frozen=True, kw_only=True):
    type: Annotated[str, Meta(min_length=1)]
    topology: Annotated[str, Meta(pattern=r"^[0-9]+x[0-9]+(x[0-9]+)?\Z")]


class McpServer(Section, frozen=True, kw_only=True):
    name: str
    transport: Literal["stdio", "sse", "streamable-http"] = "sse"
    url: str | None = None
    command: str | None = None
    args: list[str] = []
    headers: dict[str, str] = {}


class Agent(Section, frozen=True, kw_only=True):
    timeout_sec: Seconds | None = None
    user: User | None = None
    network_mode: NetworkMode | None = None
    allowed_hosts: list[Name] | None = None


class Environment(Section, frozen=True, kw_only=True):
    build_timeout_sec: Seconds = 600.0
    docker_image: Name | None = None
    os: Literal["linux", "windows"] = "linux"
    cpus: Annotated[float, Meta(gt=0, le=4096)] | None = None
    memory_mb: Megabytes | None = None
    storage_mb: Megabytes | None = None
    gpus: Annotated[int, Meta(ge=0)] | None = None
    gpu_types: list[str] | None = None
    tpu: Tpu | None = None
    workdir: AbsolutePath | None = None
    network_mode: NetworkMode = "public"
    allowed_hosts: list[Name] | None = None
    env: Environ = {}
    skills_dir: AbsolutePath | None = None
    mcp_servers: list[McpServer] = []
    healthcheck: Healthcheck | None = None


class Collect(Section, frozen=True, kw_only=True):
    command: Annotated[str, Meta(min_length=1)]
    service: Name = "main"
    timeout_sec: Seconds = 60.0
    user: User | None = None


class Verifier(Section, frozen=True, kw_only=True):
    timeout_sec: Seconds = 600.0
    env: Environ = {}
    user: User | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    network_mode: NetworkMode | None = None
    allowed_hosts: list[Name] | None = None
    collect: list[Collect] = []
    environment: Environment | None = None


class Artifact(Section, frozen=True, kw_only=True):
    source: Name
    destination: Name | None = None
    exclude: list[str] = []
    service: Name | None = None


class Solution(Section, frozen=True, kw_only=True):
    env: Environ = {}


class Step(Section, frozen=True, kw_only=True):
    name: Name
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    min_reward: float | dict[str, float] | None = None
    healthcheck: Healthcheck | None = None
    artifacts: list[Name | Artifact] = []


Version = Literal["1.0", "1.1", "1.2", "1.3", "1.4"]
VERSIONS: tuple[str, ...] = get_args(Version)


class TaskConfig(Section, frozen=True, kw_only=True):
    """The whole of task.toml."""

    schema_version: Version = "1.4"
    source: str | None = None
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    artifacts: list[Name | Artifact] = []
    task: Package | None = None
    metadata: dict[str, Any] = {}
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    environment: Environment = Environment()
    solution: Solution = Solution()
    steps: list[Step] | None = None


LIMITS = (
    ("agent", "timeout_sec"),
    ("verifier", "timeout_sec"),
    ("environment", "build_timeout_sec"),
    ("environment", "cpus"),
    ("environment", "memory_mb"),
    ("environment", "storage_mb"),
    ("environment", "network_mode"),
)
"""Keys whose defaults have changed between versions of Harbor: a task that leaves one out means different things."""


def read_config(raw: bytes) -> tuple[TaskConfig, list[Problem], list[Problem]]:
    """The config (defaults where a key is at fault), its problems, and which limits are left implicit."""
    if len(raw) > TOML_BYTES_MAX:
        return TaskConfig(), [Problem("toml", "task.toml", f"{len(raw)} bytes, more than {TOML_BYTES_MAX}")], []
    try:
        table = tomllib.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        return TaskConfig(), [Problem("toml", "task.toml", f"not readable as UTF-8 TOML: {error}")], []
    problems = _modernise(table)
    implicit = [
        Problem(
            "implicit_limit", f"{section}.{key}", "write this limit out; its default differs between Harbor versions"
        )
        for section, key in LIMITS
        if not isinstance(table.get(section), dict) or key not in table[section]
    ]
    config = _section(TaskConfig, table, "", problems)
    return config or TaskConfig(), problems, implicit


def _modernise(table: dict[str, Any]) -> list[Problem]:
    """Turns the deprecated spellings that Harbor still reads into today's, in place."""
    if "version" in table and "schema_version" not in table:
        table["schema_version"] = table.pop("version")
    problems = _version_problems(table)
    environment = table.get("environment")
    if not isinstance(environment, dict):
        return problems
    for old, new in (("memory", "memory_mb"), ("storage", "storage_mb")):
        if old in environment and new not in environment:
            try:
                environment[new] = _megabytes(environment.pop(old))
            except (ValueError, OverflowError) as error:
                problems.append(Problem("value", f"environment.{old}", f"{error}; write {new} as an integer"))
    if "allow_internet" in environment:
        said = environment.pop("allow_internet")
        mode = ("public" if said else "no-network") if isinstance(said, bool) else None
        if mode is None or environment.get("network_mode", mode) != mode:
            problems.append(
                Problem("value", "environment.allow_internet", "contradicts network_mode; keep network_mode")
            )
        environment.setdefault("network_mode", mode)
    return problems


def _version_problems(table: dict[str, Any]) -> list[Problem]:
    """An unknown version is told once and clearly, and the rest is read as the newest."""
    said = table.get("schema_version", VERSIONS[-1])
    if said in VERSIONS:
        return []
    del table["schema_version"]
    known = f"this envwheel reads Harbor's schema {VERSIONS[0]} to {VERSIONS[-1]}"
    why = f"{said!r} is not known, {known}" if isinstance(said, str) else f"{said!r} is not text; write it in quotes"
    return [Problem("version", "schema_version", why)]


def _megabytes(value: object) -> int:
    factors = {"K": 1 / 1024, "M": 1, "G": 1024}
    if (
        not isinstance(value, str)
        or value[-1:].upper() not in factors
        or not value[:-1].replace(".", "", 1).isdecimal()
    ):
        raise ValueError(f"{value!r} is not a size such as 512M or 2G")
    return int(float(value[:-1]) * factors[value[-1].upper()])


def _section(kind: type[S], table: object, where: str, problems: list[Problem]) -> S | None:
    """Reads one table key by key, so that one bad key does not hide another. None where a required key is missing."""
    if not isinstance(table, dict):
        problems.append(Problem("value", where, f"expected a table, got {type(table).__name__}"))
        return None
    values: dict[str, Any] = {}
    known = {field.name: field for field in msgspec.structs.fields(kind)}
    problems += [
        Problem("unknown_key", _join(where, key), "Harbor knows no such key, and would ignore it silently")
        for key in table
        if key not in known
    ]
    for key, field in known.items():
        if key in table:
            value = _value(field.type, table[key], _join(where, key), problems)
            if value is not None:
                values[key] = value
        elif field.required:
            problems.append(Problem("missing_key", _join(where, key), "this key is needed here"))
    return None if any(field.required and key not in values for key, field in known.items()) else kind(**values)


def _value(kind: Any, value: object, where: str, problems: list[Problem]) -> Any:
    choices = get_args(kind) or (kind,)
    section = next((each for each in choices if isinstance(each, type) and issubclass(each, Section)), None)
    if section is not None and isinstance(value, dict):
        return _section(section, value, where, problems)
    if section is not None and get_origin(kind) is list and isinstance(value, list):
        found = [_section(section, each, f"{where}[{i}]", problems) for i, each in enumerate(value)]
        return [each for each in found if each is not None]
    try:
        converted = msgspec.convert(value, type=kind)
    except msgspec.ValidationError as error:
        problems.append(Problem("value", where, str(error)))
        return None
    if not where.startswith("metadata") and not _finite(value):
        problems.append(Problem("value", where, "expected a finite number"))
        return None
    return converted


def _finite(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    if isinstance(value, list):
        return all(map(_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
