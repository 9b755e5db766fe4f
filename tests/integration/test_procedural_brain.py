"""The procedural brains at a real terminal: what they write is valid, and follows from what the solver did."""

import json
import tomllib
from collections.abc import Generator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from schemas.outcomes import GateOutcome
from schemas.parts import Arm, GateResult
from services.kernel.agent.conversation import Observation
from services.kernel.archive import FileEntry
from services.kernel.skills.catalogue import SKILLS
from services.kernel.skills.compose import compose
from services.kernel.skills.harbor_files import harbor_files
from services.kernel.skills.lexicon import Names
from services.proposer.authoring.procedural import BRAINS
from services.proposer.authoring.workspace import RolloutNote, Tree, Workspace
from tests.support.authoring import PASSED, Session, graded, run_session

PARENT_SKILLS = ("sort_numbers", "copy_file")
PARENT_TESTS = ("sort_numbers__right", "sort_numbers__source_kept", "copy_file__copied", "copy_file__source_kept")


def _tree(skills: tuple[str, ...], seed: int) -> Tree:
    rng = Random(seed)
    files = harbor_files(compose(rng, skills, Names(rng)))
    return {path: FileEntry(spec.content, spec.mode == 0o755) for path, spec in files.items()}


def _rollouts(failed: str) -> tuple[RolloutNote, ...]:
    tests = {name: name != failed for name in PARENT_TESTS}
    return tuple(RolloutNote(0.75, tests, ["ls"], b"{}") for _ in range(4))


def _workspace(direction: str, failed: str | None = None, *, parent: bool = True, **more: Any) -> Workspace:
    assignment = {
        "round": 2,
        "slot": 7,
        "revision": 0,
        "direction": direction,
        "parent": "ab" * 32 if parent else None,
        "pass_rate": 0.75 if parent else None,
        "commonest_failure": failed,
        "domain": "any",
        "seed": 11,
    } | more
    return Workspace(
        assignment,
        parent=_tree(PARENT_SKILLS, 1) if parent else None,
        previous=_tree(("make_folders", "tar_pack"), 2) if assignment["revision"] else None,
        rollouts=_rollouts(failed) if failed else (),
    )


def _skills(session: Session) -> tuple[str, ...]:
    """Skills by the tests that the submitted verifier really has."""
    line = next(line for line in session.file("tests/test.sh").splitlines() if line.startswith("checks=("))
    return tuple(dict.fromkeys(name.split("__")[0] for name in line[8:-1].split()))


@pytest.mark.parametrize("name", BRAINS)
@pytest.mark.parametrize("seed", range(3))
async def test_a_brain_writes_an_environment_whose_reference_earns_all_and_submits_it(
    name: str, seed: int, tmp_path: Path
) -> None:
    workspace = _workspace("new", parent=False, seed=seed)
    session = await run_session(BRAINS[name](), workspace, tmp_path, graded(tmp_path))
    assert session.submitted is not None
    assert session.drafts == (session.submitted,)
    assert session.commands[-1] == "envwheel-draft submit"
    manifest = tomllib.loads(session.file("task.toml"))
    assert manifest["metadata"]["skills"] == list(_skills(session))
    written = [command for command in session.commands if command.startswith("mkdir -p task/")]
    assert len(written) >= 4


async def test_equal_workspaces_give_equal_sessions_and_another_seed_another_environment(tmp_path: Path) -> None:
    workspace = _workspace("harder", PARENT_TESTS[0])
    first = await run_session(BRAINS["procedural"](), workspace, tmp_path / "a")
    again = await run_session(BRAINS["procedural"](), workspace, tmp_path / "b")
    other = await run_session(BRAINS["procedural"](), _workspace("harder", PARENT_TESTS[0], seed=12), tmp_path / "c")
    assert (first.commands, first.submitted) == (again.commands, again.submitted)
    assert first.submitted != other.submitted


@pytest.mark.parametrize(
    ("arm", "checks", "notes"), [("prompt", 0, False), ("prompt+feedback", 1, False), ("terminal", 1, True)]
)
async def test_an_arm_takes_checks_or_notes_away(arm: Arm, checks: int, notes: bool, tmp_path: Path) -> None:
    session = await run_session(BRAINS["procedural"](arm), _workspace("new"), tmp_path)
    assert session.submitted is not None
    assert len(session.drafts) == checks
    assert bool(session.memory.keys() - {"README.md"}) == notes


@pytest.mark.parametrize("name", BRAINS)
async def test_the_next_environment_tests_the_skill_that_the_solver_failed_most(name: str, tmp_path: Path) -> None:
    for direction in ("simpler", "harder"):
        for failed, skill, other in (
            ("sort_numbers__right", "sort_numbers", "copy_file"),
            ("copy_file__source_kept", "copy_file", "sort_numbers"),
        ):
            session = await run_session(
                BRAINS[name](), _workspace(direction, failed), tmp_path / f"{direction}-{skill}"
            )
            found = _skills(session)
            assert skill in found
            if direction == "simpler":
                assert found == (skill,)
                assert other not in session.file("tests/test.sh")
            else:
                assert set(found) > set(PARENT_SKILLS)


async def test_two_brains_write_differently_for_the_same_order(tmp_path: Path) -> None:
    workspace = _workspace("harder", PARENT_TESTS[0])
    sessions = [await run_session(BRAINS[name](), workspace, tmp_path / name) for name in BRAINS]
    assert len({session.submitted for session in sessions}) == len(BRAINS)


@pytest.mark.parametrize(
    ("kind", "detail", "steps"),
    [("calibration", "too_easy", 3), ("calibration", "too_hard", 1), ("gate", "duplicate: near env", 2)],
)
async def test_a_revision_answers_its_evidence(kind: str, detail: str, steps: int, tmp_path: Path) -> None:
    workspace = _workspace("new", parent=False, revision=1, evidence={"kind": kind, "detail": detail})
    session = await run_session(BRAINS["procedural"](), workspace, tmp_path)
    found = _skills(session)
    assert len(found) == steps
    assert set(found) & {"make_folders", "tar_pack"}
    lesson = session.memory["lessons/0002-0007.md"].content.decode()
    assert ("learned make_folders+tar_pack " + detail in lesson) == (kind == "calibration")
    assert lesson.count("\n") == 1


async def test_a_draft_that_fails_a_gate_is_mended_before_it_is_submitted(tmp_path: Path) -> None:
    calls = 0

    async def check(archive: bytes) -> list[GateResult]:
        nonlocal calls
        calls += 1
        failed = GateResult(gate="duplicate", outcome=GateOutcome.failed, detail="near ab12")
        return [PASSED, failed] if calls < 3 else [PASSED]

    session = await run_session(BRAINS["procedural"](), _workspace("simpler", PARENT_TESTS[0]), tmp_path, check)
    assert calls == 3
    assert len(set(session.drafts)) == 3
    assert session.submitted == session.drafts[-1]
    assert "sort_numbers" in _skills(session)


async def test_without_a_readable_assignment_or_a_channel_nothing_is_submitted() -> None:
    brain = BRAINS["procedural"]()
    assert next(brain) == "cat assignment.json"
    with pytest.raises(StopIteration):
        brain.send(Observation("cat: assignment.json: No such file or directory", 1))
    brain = BRAINS["procedural"]()
    next(brain)
    command = brain.send(Observation(json.dumps({"direction": "new", "seed": 1}), 0))
    while command != "envwheel-draft check":
        command = brain.send(Observation("", 0))
    with pytest.raises(StopIteration):
        brain.send(Observation("envwheel-draft: no socket /run/envwheel/draft.sock", 2))


async def test_what_memory_calls_easy_gets_one_step_more() -> None:
    for name in BRAINS:
        plain = _manifest(BRAINS[name](), "")
        easy = _manifest(BRAINS[name](), "".join(f"- slot 0: learned {skill} too_easy\n" for skill in SKILLS))
        assert easy["metadata"]["steps"] == plain["metadata"]["steps"] + 1


def _manifest(brain: Generator[str, Observation, None], lessons: str) -> dict[str, Any]:
    assert next(brain) == "cat assignment.json"
    command = brain.send(Observation(json.dumps({"direction": "new", "seed": 1, "domain": "json"}), 0))
    assert command.startswith("cat memory/lessons/")
    command = brain.send(Observation(lessons, 0))
    while "> task/task.toml" not in command:
        command = brain.send(Observation("", 0))
    return tomllib.loads(command.split("\n", 1)[1].rpartition("\n")[0])
