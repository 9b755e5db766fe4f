"""Writes a Harbor task with every limit in the open: one task.toml means the same under every version of Harbor."""

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import structs

from services.kernel.archive import FileEntry
from services.kernel.harbor.config import TaskConfig
from services.kernel.harbor.task import AGENT_TIMEOUT_S, CPUS, MEMORY_MB, STORAGE_MB, WORKDIR


def task_files(config: TaskConfig, instruction: str, rest: Mapping[str, FileEntry]) -> dict[str, FileEntry]:
    """All files of a task: task.toml and instruction.md written anew, `rest` (environment/, tests/, …) as given."""
    written = {
        "task.toml": FileEntry(task_toml(config).encode()),
        "instruction.md": FileEntry(instruction.encode()),
    }
    return {**rest, **written}


def explicit(config: TaskConfig) -> TaskConfig:
    """The same config with the limits that it left to defaults written in."""
    mode = config.verifier.environment_mode or ("separate" if config.verifier.environment else "shared")
    environment = structs.replace(
        config.environment,
        cpus=config.environment.cpus or CPUS,
        memory_mb=config.environment.memory_mb or MEMORY_MB,
        storage_mb=config.environment.storage_mb or STORAGE_MB,
        gpus=config.environment.gpus or 0,
        workdir=config.environment.workdir or WORKDIR,
    )
    return structs.replace(
        config,
        schema_version="1.4",
        agent=structs.replace(config.agent, timeout_sec=config.agent.timeout_sec or AGENT_TIMEOUT_S),
        verifier=structs.replace(config.verifier, environment_mode=mode),
        environment=environment,
    )


def task_toml(config: TaskConfig) -> str:
    """task.toml with explicit limits; keys without a value (None, empty) are left out.

    Raises:
        ValueError: metadata that TOML cannot hold (a null, a number that is not finite).
    """
    table = msgspec.to_builtins(explicit(config), builtin_types=())
    lines: list[str] = []
    _table(table, (), lines)
    return "\n".join(lines).lstrip("\n") + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    plain = {key: value for key, value in table.items() if value is not None and value not in ({}, [])}
    nested = {key: value for key, value in plain.items() if isinstance(value, dict)}
    if path and len(nested) < len(plain):
        lines += ["", f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in plain.items() if key not in nested]
    for key, value in nested.items():
        _table(value, (*path, key), lines)


def _key(key: str) -> str:
    return key if key and key.isascii() and key.replace("_", "").replace("-", "").isalnum() else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for DEL, which TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a finite number")
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items() if each is not None) + "}"
    raise ValueError(f"{type(value).__name__} has no place in task.toml")
