"""The folder that an author starts in: the same bytes, names and times from the same inputs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from schemas.rules import commonest_failure, mean_std
from services.kernel.archive import FileEntry, write_tree

Tree = Mapping[str, FileEntry]
"""Files by relative path."""
OWN = ("memory", "tools")
"""Folders that last, and that an author may change. All else that it finds is read-only."""
DIAGNOSIS = "diagnosis/"
TOOLS = ".tools/"
"""Where a memory delta holds files of `tools/`; no file of `memory/` can lie there."""


@dataclass(frozen=True)
class RolloutNote:
    """One attempt of the solver on the parent, as an author sees it."""

    reward: float
    tests: Mapping[str, bool]
    commands: Sequence[str]
    transcript: bytes
    """JSON text of the whole attempt."""
    verifier: bytes | None = None
    """What the verifier printed, where it is known."""


@dataclass(frozen=True)
class Workspace:
    assignment: Mapping[str, Any]
    """round, slot, revision, direction, parent, pass_rate, commonest_failure, domain, seed; evidence for a revision."""
    parent: Tree | None = None
    previous: Tree | None = None
    """The draft that a revision answers for."""
    diagnosis: RolloutNote | None = None
    """Of a draft that was too hard: an attempt on it that had hints from its solution."""
    rollouts: Sequence[RolloutNote] = ()
    trajectories: Sequence[bytes] = ()
    """JSON text of attempts that other agents made on the parent."""
    memory: Tree | None = None
    tools: Tree | None = None
    past: Sequence[Tree] = ()


def workspace_files(workspace: Workspace) -> dict[str, FileEntry]:
    """All files by path relative to the workspace, sorted."""
    found = {
        "GUIDE.md": FileEntry(_page("terminal.md") + _page("guide.md")),
        "assignment.json": _json(workspace.assignment),
        "rollouts/index.json": _json(
            [_entry(note, _rollout_path(index), _verifier_path(index)) for index, note in enumerate(workspace.rollouts)]
        ),
        "rollouts/summary.json": _json(_summary(workspace.rollouts)),
        "memory/README.md": FileEntry(b"Notes that last from round to round. Keep them short.\n"),
        "tools/README.md": FileEntry(b"Programs of your own that last from round to round.\n"),
    }
    for index, rollout in enumerate(workspace.rollouts):
        found[_rollout_path(index)] = FileEntry(rollout.transcript)
        if rollout.verifier is not None:
            found[_verifier_path(index)] = FileEntry(rollout.verifier)
    if (diagnosis := workspace.diagnosis) is not None:
        found[f"{DIAGNOSIS}index.json"] = _json(
            _entry(diagnosis, f"{DIAGNOSIS}attempt.json", f"{DIAGNOSIS}verifier.txt")
        )
        found[f"{DIAGNOSIS}attempt.json"] = FileEntry(diagnosis.transcript)
        if diagnosis.verifier is not None:
            found[f"{DIAGNOSIS}verifier.txt"] = FileEntry(diagnosis.verifier)
    found |= {f"trajectories/{n:03}.json": FileEntry(text) for n, text in enumerate(workspace.trajectories)}
    trees = {"parent": workspace.parent, "previous": workspace.previous}
    trees |= {"memory": workspace.memory, "tools": workspace.tools}
    trees |= {f"past/{index:03}": tree for index, tree in enumerate(workspace.past)}
    for folder, tree in trees.items():
        found |= {f"{folder}/{path}": entry for path, entry in (tree or {}).items()}
    return dict(sorted(found.items()))


def write_workspace(workspace: Workspace, root: Path) -> None:
    """Write it below `root`, which is made or must be empty.

    Raises:
        ArchiveError: a path in one of the trees that leaves its folder or cannot be held.
    """
    write_tree(workspace_files(workspace), root)


def memory_delta(before: Tree, after: Tree) -> dict[str, FileEntry]:
    """Files of the memory that a session wrote or changed. A file taken away stays: a delta only adds."""
    return {path: entry for path, entry in sorted(after.items()) if before.get(path) != entry}


def memory_of(deltas: Sequence[Tree]) -> dict[str, FileEntry]:
    """The memory that these deltas make, in order: of one path the later counts, also where it was a folder before."""
    merged: dict[str, FileEntry] = {}
    for delta in deltas:
        for path, entry in delta.items():
            for gone in [old for old in merged if old.startswith(f"{path}/") or path.startswith(f"{old}/")]:
                del merged[gone]
            merged[path] = entry
    return dict(sorted(merged.items()))


def _page(name: str) -> bytes:
    return files("services.proposer.authoring").joinpath(name).read_bytes()


def _rollout_path(index: int) -> str:
    return f"rollouts/{index:03}.json"


def _verifier_path(index: int) -> str:
    return f"rollouts/{index:03}.verifier.txt"


def _entry(rollout: RolloutNote, file: str, verifier: str) -> dict[str, Any]:
    return {
        "reward": rollout.reward,
        "tests": dict(sorted(rollout.tests.items())),
        "commands": list(rollout.commands),
        "file": file,
        "verifier": None if rollout.verifier is None else verifier,
    }


def _summary(rollouts: Sequence[RolloutNote]) -> dict[str, Any]:
    rewards = [rollout.reward for rollout in rollouts]
    mean, std = mean_std(rewards) if rewards else (None, None)
    failure = commonest_failure(dict(rollout.tests) for rollout in rollouts)
    return {"attempts": len(rewards), "rewards": rewards, "mean": mean, "std": std, "commonest_failure": failure}


def _json(value: Any) -> FileEntry:
    return FileEntry((json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n").encode())
