"""The workspace is the same tree from the same inputs, and memory is a list of deltas."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from services.kernel.archive import ArchiveError, FileEntry
from services.proposer.authoring.workspace import (
    RolloutNote,
    Workspace,
    memory_delta,
    memory_of,
    workspace_files,
    write_workspace,
)

TASK = {"task.toml": FileEntry(b"x = 1\n"), "tests/test.sh": FileEntry(b"#!/bin/bash\n", True)}
WORKSPACE = Workspace(
    {"seed": 1, "direction": "harder", "parent": "ab"},
    parent=TASK,
    rollouts=(
        RolloutNote(0.5, {"b__x": True, "a__x": False}, ["ls", "cat 'a b'"], b'{"turns": []}', b"failed a__x\n"),
        RolloutNote(1.0, {"b__x": True, "a__x": True}, [], b"{}"),
    ),
    tools={"count.sh": FileEntry(b"#!/bin/sh\n", True)},
    memory={"lessons/0001-0002.md": FileEntry(b"- note\n")},
    past=(TASK, TASK),
)


def test_a_diagnosis_lies_in_a_folder_of_its_own_and_among_no_attempts() -> None:
    note = RolloutNote(0.25, {"a__x": False}, ["sort -n"], b'{"turns": [1]}', b"failed a__x\n")
    files = workspace_files(replace(WORKSPACE, diagnosis=note))
    assert set(files) - set(workspace_files(WORKSPACE)) == {
        "diagnosis/index.json",
        "diagnosis/attempt.json",
        "diagnosis/verifier.txt",
    }
    index = json.loads(files["diagnosis/index.json"].content)
    assert (index["reward"], index["commands"], index["file"]) == (0.25, ["sort -n"], "diagnosis/attempt.json")
    assert files["diagnosis/attempt.json"].content == b'{"turns": [1]}'
    for name in ("rollouts/index.json", "rollouts/summary.json"):
        assert files[name] == workspace_files(WORKSPACE)[name]


def test_workspace_holds_all_parts_at_their_places() -> None:
    files = workspace_files(WORKSPACE)
    assert list(files) == sorted(files)
    assert set(files) == {
        "GUIDE.md",
        "assignment.json",
        "memory/README.md",
        "memory/lessons/0001-0002.md",
        "parent/task.toml",
        "parent/tests/test.sh",
        "past/000/task.toml",
        "past/000/tests/test.sh",
        "past/001/task.toml",
        "past/001/tests/test.sh",
        "rollouts/000.json",
        "rollouts/000.verifier.txt",
        "rollouts/001.json",
        "rollouts/index.json",
        "rollouts/summary.json",
        "tools/README.md",
        "tools/count.sh",
    }
    assert json.loads(files["rollouts/index.json"].content) == [
        {
            "reward": 0.5,
            "tests": {"a__x": False, "b__x": True},
            "commands": ["ls", "cat 'a b'"],
            "file": "rollouts/000.json",
            "verifier": "rollouts/000.verifier.txt",
        },
        {
            "reward": 1.0,
            "tests": {"a__x": True, "b__x": True},
            "commands": [],
            "file": "rollouts/001.json",
            "verifier": None,
        },
    ]
    assert json.loads(files["rollouts/summary.json"].content) == {
        "attempts": 2,
        "rewards": [0.5, 1.0],
        "mean": 0.75,
        "std": 0.25,
        "commonest_failure": "a__x",
    }
    assert json.loads(workspace_files(Workspace({}))["rollouts/summary.json"].content)["mean"] is None
    assert files["tools/count.sh"].executable
    assert files["parent/tests/test.sh"].executable


def test_workspace_on_disk_is_the_same_tree_every_time(tmp_path: Path) -> None:
    trees = []
    for name in ("a", "b"):
        write_workspace(WORKSPACE, tmp_path / name)
        paths = sorted((tmp_path / name).rglob("*"))
        content = [path.read_bytes() if path.is_file() else b"" for path in paths]
        state = [(path.stat().st_mode, path.stat().st_mtime) for path in paths]
        trees.append(([path.relative_to(tmp_path / name) for path in paths], content, state))
    assert trees[0] == trees[1]
    assert {mtime for _, mtime in trees[0][2]} == {0.0}


def test_a_path_that_leaves_its_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError):
        write_workspace(Workspace({}, parent={"../../outside": FileEntry(b"x")}), tmp_path / "w")
    assert not (tmp_path / "outside").exists()


def test_memory_is_the_deltas_in_order_and_a_delta_holds_what_changed() -> None:
    base = {"a": FileEntry(b"1"), "b": FileEntry(b"2")}
    after = {"a": FileEntry(b"1"), "b": FileEntry(b"3"), "c": FileEntry(b"4")}
    delta = memory_delta(base, after)
    assert delta == {"b": FileEntry(b"3"), "c": FileEntry(b"4")}
    assert memory_of([base, delta]) == after
    assert memory_of([delta, base])["b"] == FileEntry(b"2")
    assert memory_delta(base, {}) == {}
