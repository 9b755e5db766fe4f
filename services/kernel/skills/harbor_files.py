"""Writes a task as the files of a Harbor task directory (schema 1.4, every limit written out)."""

import hashlib
import json
from collections.abc import Mapping, Sequence

from services.kernel.skills.compose import Task
from services.kernel.skills.step import Check, FileSpec

AGENT_TIMEOUT_S = 300.0
VERIFIER_TIMEOUT_S = 60.0
BUILD_TIMEOUT_S = 60.0
MEMORY_MB = 512
STORAGE_MB = 256
BASE_IMAGE = "envwheel/base:1"

_VERIFIER_HEAD = """#!/bin/bash
# Prints one line a check; the reward is the share of checks passed, written whatever happens.
set -u
declare -A status=()
finish() {
  local out=/logs/verifier total=${#checks[@]} passed=0 name entries=() IFS=,
  mkdir -p "$out"
  for name in "${checks[@]}"; do
    [ "${status[$name]:=failed}" = passed ] && passed=$((passed + 1))
    entries+=("{\\"name\\":\\"$name\\",\\"status\\":\\"${status[$name]}\\",\\"duration\\":0}")
  done
  printf '{"results":{"tool":{"name":"envwheel"},"summary":{"tests":%d,"passed":%d,"failed":%d,%s},"tests":[%s]}}\\n' \\
    "$total" "$passed" "$((total - passed))" '"pending":0,"skipped":0,"other":0,"start":0,"stop":0' \\
    "${entries[*]}" > "$out/ctrf.json.tmp" && mv -f "$out/ctrf.json.tmp" "$out/ctrf.json"
  local share=$(((passed * 20000 + total) / (2 * total)))
  printf '%d.%04d\\n' $((share / 10000)) $((share % 10000)) > "$out/reward.txt.tmp" &&
    mv -f "$out/reward.txt.tmp" "$out/reward.txt"
}
trap finish EXIT
trap 'exit 143' INT TERM
"""
_VERIFIER_TAIL = """
for name in "${checks[@]}"; do
  if (cd /app && "$name") > /dev/null 2>&1 < /dev/null; then status[$name]=passed; else status[$name]=failed; fi
  echo "${status[$name]} $name"
done
"""


def harbor_files(task: Task, *, slug: str | None = None) -> dict[str, FileSpec]:
    """By path relative to the task directory, sorted. Without a slug one is made from skills and content.

    Raises:
        ValueError: the slug is no plain lower-case name.
    """
    files = {f"environment/files/{path}": spec for path, spec in task.files.items()}
    files["environment/Dockerfile"] = _text(_dockerfile(task))
    files["instruction.md"] = _text(task.instruction + "\n")
    files["solution/solve.sh"] = _text(solution([turn.command for turn in task.turns]), executable=True)
    files["tests/test.sh"] = _text(verifier(task.checks), executable=True)
    name = slug or f"{'-'.join(task.skills).replace('_', '-')}-{_digest(files)[:8]}"
    if not name.replace("-", "").isalnum() or not name.isascii() or name != name.lower() or len(name) > 128:
        raise ValueError(f"{name!r} is no slug: use a-z, 0-9 and '-', at most 128 of them")
    files["task.toml"] = _text(_manifest(task, name))
    return dict(sorted(files.items()))


def solution(commands: Sequence[str]) -> str:
    return "\n".join(["#!/bin/bash", "set -euo pipefail", "cd /app", *commands]) + "\n"


def verifier(checks: Sequence[Check]) -> str:
    """One bash function a check; needs bash and coreutils only."""
    listed = " ".join(check.name for check in checks)
    functions = "\n".join(f"{check.name}() {{\n  {check.expression}\n}}" for check in checks)
    return f"{_VERIFIER_HEAD}\nchecks=({listed})\n{functions}\n{_VERIFIER_TAIL}"


def _dockerfile(task: Task) -> str:
    copy = ["COPY files/ /app/"] if task.files else []
    return (
        "\n".join([f"FROM {BASE_IMAGE}", "WORKDIR /app", *copy, *(f"RUN {command}" for command in task.build)]) + "\n"
    )


def _manifest(task: Task, slug: str) -> str:
    return f"""schema_version = "1.4"

[task]
name = "envwheel/{slug}"
version = "1"
description = {json.dumps(task.instruction)}
keywords = {json.dumps(list(task.families))}

[metadata]
families = {json.dumps(list(task.families))}
skills = {json.dumps(list(task.skills))}
steps = {len(task.steps)}
turns_min = {len(task.turns)}

[agent]
timeout_sec = {AGENT_TIMEOUT_S}

[verifier]
timeout_sec = {VERIFIER_TIMEOUT_S}
environment_mode = "shared"

[environment]
build_timeout_sec = {BUILD_TIMEOUT_S}
os = "linux"
cpus = 1
memory_mb = {MEMORY_MB}
storage_mb = {STORAGE_MB}
gpus = 0
workdir = "/app"
network_mode = "no-network"
"""


def _text(text: str, *, executable: bool = False) -> FileSpec:
    return FileSpec(text.encode(), 0o755 if executable else 0o644)


def _digest(files: Mapping[str, FileSpec]) -> str:
    listing = [
        f"{path} {spec.mode:o} {hashlib.sha256(spec.content).hexdigest()}\n" for path, spec in sorted(files.items())
    ]
    return hashlib.sha256("".join(listing).encode()).hexdigest()
