"""What an agent leaves for a separate verifier: declared files alone, each at its original path. And what else it left.

As Harbor has it: collect hooks run while the agent's processes live, a failing one is only a warning; /logs/artifacts
is always declared; a declared folder replaces the verifier's; a missing source is no fault. Otherwise than there: links
and special files are left out, no link is followed on the way, and the whole is bounded.
"""

import errno
import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from services.kernel.archive import FileEntry
from services.kernel.harbor.config import Artifact, TaskConfig
from services.kernel.sandbox.protocol import Ended, Limits, Sandbox, SandboxRefusedError

FILES_MAX = 10_000
BYTES_MAX = 128 * 2**20
CONVENTION = "/logs/artifacts"
SHOWN_MAX = 20
"""Processes, files and warnings that are named."""
_LOOK_LIMITS = Limits(cpu_s=10.0, wall_s=100.0)

_NOBODYS = (
    CONVENTION, "/logs", "/solution", "/tmp", "/var/tmp", "/proc", "/sys", "/dev", "/run",  # noqa: S108
    "/.dockerenv", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf",
)  # fmt: skip
"""What is written beside any work, by everybody or by a container engine."""

_PROCESSES = """for status in /proc/[0-9]*/status; do
  [ "$status" = /proc/1/status ] || [ "$status" = "/proc/$$/status" ] && continue
  name= state=
  while read -r key value; do case $key in Name:) name=$value;; State:) state=$value; break;; esac; done < "$status"
  case $state in ''|Z*|X*) ;; *) printf '%s\\n' "$name";; esac
done 2>/dev/null"""


@dataclass(frozen=True)
class Outputs:
    """Files of each declared source that was there; a source that is a file has its only entry under ""."""

    found: tuple[tuple[str, dict[str, FileEntry]], ...]
    warnings: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(source for source, _ in self.found)


async def living_processes(sandbox: Sandbox) -> tuple[str, ...]:
    """Names of processes that still run, sorted. The agent's own programs tell: it is good for an explanation only."""
    seen = await sandbox.exec(("bash", "-c", _PROCESSES), cwd="/", limits=_LOOK_LIMITS)
    if seen.ended is not Ended.exited or seen.exit_code:
        return ()
    names = {line for line in seen.output.decode(errors="replace").splitlines() if line.isprintable()}
    return tuple(sorted(names)[:SHOWN_MAX])


async def run_hooks(sandbox: Sandbox, config: TaskConfig, limits: Limits) -> tuple[str, ...]:
    """Runs the collect hooks; the warnings of those that failed. Raises SandboxError for infrastructure alone."""
    warnings = []
    for hook in config.verifier.collect:
        bounded = Limits(
            cpu_s=hook.timeout_sec,
            wall_s=10 * hook.timeout_sec,
            memory_bytes_max=limits.memory_bytes_max,
            pids_max=limits.pids_max,
            disk_bytes_max=limits.disk_bytes_max,
        )
        user = None if hook.user is None else str(hook.user)
        try:
            result = await sandbox.exec(hook.command, user=user, limits=bounded)
        except SandboxRefusedError as error:
            warnings.append(f"collect hook {hook.command[:80]!r}: {error}")
            continue
        if result.ended is not Ended.exited or result.exit_code:
            how = f"exit code {result.exit_code}" if result.ended is Ended.exited else f"stopped by its {result.ended}"
            warnings.append(f"collect hook {hook.command[:80]!r}: {how}")
    return tuple(warnings)


async def collect(sandbox: Sandbox, artifacts: Sequence[str | Artifact]) -> Outputs:
    """Reads what is declared and there. Raises SandboxError for infrastructure alone."""
    declared = [Artifact(source=each) if isinstance(each, str) else each for each in artifacts]
    if all(each.source.rstrip("/") != CONVENTION for each in declared):
        declared.insert(0, Artifact(source=CONVENTION))
    found: list[tuple[str, dict[str, FileEntry]]] = []
    warnings: list[str] = []
    files_left, bytes_left = FILES_MAX, BYTES_MAX
    for artifact in declared:
        try:
            files = await _read(sandbox, artifact.source, files_left, bytes_left)
        except FileNotFoundError:
            continue
        except SandboxRefusedError as error:
            warnings.append(f"artifact {artifact.source}: {error}")
            continue
        files = {name: entry for name, entry in files.items() if not (name and _excluded(name, artifact.exclude))}
        files_left -= len(files)
        bytes_left -= sum(len(entry.content) for entry in files.values())
        found.append((artifact.source, files))
    return Outputs(tuple(found), tuple(warnings[:SHOWN_MAX]))


async def restore(sandbox: Sandbox, outputs: Outputs, room: Path) -> None:
    """Puts the outputs where they were; `room` is an empty folder for the way there.

    Raises:
        SandboxRefusedError: the verifier's sandbox has something in the way.
    """
    for serial, (source, files) in enumerate(outputs.found):
        place = room / str(serial)
        try:
            if "" in files:
                _write(place, files[""])
            else:
                place.mkdir()
                for name, entry in files.items():
                    _write(place / name, entry)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise SandboxRefusedError(f"artifact {source}: a path in it is too long") from error
        if "" not in files:
            await sandbox.exec(("bash", "-c", 'shopt -s dotglob nullglob; rm -rf -- "$1"/*', "-", source), cwd="/")
        await sandbox.put(place, source.rstrip("/"))


async def undeclared(sandbox: Sandbox, since_s: float, artifacts: Sequence[str | Artifact]) -> tuple[str, ...]:
    """Files written since then that no artifact covers: for an author who forgot to declare one."""
    command = f"find / -xdev -type f -newermt @{since_s:.3f} 2>/dev/null | head -n 500"
    seen = await sandbox.exec(command, cwd="/", limits=_LOOK_LIMITS)
    declared = [each if isinstance(each, str) else each.source for each in artifacts]
    skipped = (*declared, *_NOBODYS)
    names = [
        line
        for line in seen.output.decode(errors="replace").splitlines()
        if line.isprintable() and not any(Path(line).is_relative_to(place) for place in skipped)
    ]
    return tuple(sorted(names)[:SHOWN_MAX])


async def _read(sandbox: Sandbox, source: str, files_max: int, bytes_max: int) -> dict[str, FileEntry]:
    path = "/" + source.strip("/")
    try:
        content = await sandbox.get(path, bytes_max=max(bytes_max, 1))
    except SandboxRefusedError as refused:
        try:
            return await sandbox.get_tree(path, files_max=files_max, bytes_max=max(bytes_max, 1))
        except SandboxRefusedError as error:
            # Neither a file nor a folder: the first answer says what it is.
            raise (refused if "no folder" in str(error) else error) from error
    runs = await sandbox.exec(("test", "-x", path), cwd="/", limits=_LOOK_LIMITS)
    return {"": FileEntry(content, runs.exit_code == 0)}


def _excluded(name: str, patterns: Sequence[str]) -> bool:
    """As tar's --exclude: a pattern may match the path or any end of it, and what lies below a match goes too."""
    parts = name.split("/")
    candidates = ["/".join(parts[start:end]) for end in range(1, len(parts) + 1) for start in range(end)]
    return any(fnmatch.fnmatchcase(each, pattern.rstrip("/")) for pattern in patterns for each in candidates)


def _write(path: Path, entry: FileEntry) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(entry.content)
    path.chmod(0o755 if entry.executable else 0o644)
