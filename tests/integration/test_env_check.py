"""`envwheel env check` and `env recheck`: words, exit codes, evidence, and what is kept from one call to the next."""

import io
import json
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services.cli.checks.verdict import Code
from services.cli.entry import run
from services.kernel.archive import digest, pack, write_tree
from services.validator.gates.run import GATES
from tests.support.engine import engine_host
from tests.support.harbor_tasks import greeting

QUICK = ("--set", "gates.flaky_repeats=1", "--set", "gates.mutants_max=1")
COMPOSE = {"environment/docker-compose.yaml": "services: {}\n"}
LAZY = {"solution/solve.sh": "#!/bin/bash\necho nothing done\n"}
SAYING = "Carry all thirteen lanterns of the lighthouse down into the cellar before the next tide comes in.\n"

Changes = Mapping[str, str | bytes | None]


@dataclass
class Bench:
    """Task directories, the user's cache, and the command."""

    home: Path
    capsys: pytest.CaptureFixture[str]

    def task(self, name: str, changes: Changes | None = None) -> Path:
        write_tree(greeting(changes), self.home / name)
        return self.home / name

    def check(self, *words: object) -> tuple[int, str]:
        code = run(["env", "check", *map(str, words), *QUICK])
        return code, self.capsys.readouterr().out

    def json(self, *words: object) -> tuple[int, Any]:
        code, output = self.check(*words, "--json")
        return code, json.loads(output)

    def left_over(self) -> list[str]:
        return [path.name for path in (self.home / "cache" / "workshop" / "sandboxes").glob("owner-*")]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all: what a machine holds is tried only once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def bench(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    (tmp_path / "cache").symlink_to(cache)
    monkeypatch.setenv("ENVWHEEL_CACHE", str(cache))
    # One code for all of a test, also in a checkout that somebody edits meanwhile.
    monkeypatch.setattr("services.cli.checks.shop.code_version", lambda: "this code")
    return Bench(tmp_path, capsys)


def test_a_valid_task_ends_with_0_and_every_gate_has_its_line(bench: Bench) -> None:
    code, output = bench.check(bench.task("good"))
    assert code == Code.valid
    lines = output.splitlines()
    names = [gate.name for gate in sorted(GATES, key=lambda gate: gate.cost)]
    assert [line[:18].strip() for line in lines[: len(names)]] == names
    assert " passed " in lines[0]
    assert lines[-1].startswith("valid: ")
    assert bench.left_over() == []


def test_an_invalid_task_ends_with_1_and_names_the_gate_and_shows_what_was_printed(bench: Bench) -> None:
    code, output = bench.check(bench.task("lazy", LAZY))
    assert code == Code.invalid
    assert "nothing done" in output
    assert output.splitlines()[-1] == "oracle passes: the solution earns 0 (says_hi)"
    assert "not flaky          skipped" in output
    code, all_gates = bench.json(bench.home / "lazy", "--all")
    assert code == Code.invalid
    outcomes = {gate["gate"]: gate["outcome"] for gate in all_gates["gates"]}
    assert outcomes["oracle passes"] == "failed"
    assert outcomes["not flaky"] != "skipped"


def test_what_this_installation_cannot_run_ends_with_2_and_says_what_to_do(bench: Bench) -> None:
    code, found = bench.json(bench.task("compose", COMPOSE))
    assert (code, found["verdict"]) == (Code.unchecked, "could not check")
    assert "use one Dockerfile" in found["reason"]
    code, found = bench.json(bench.task("both", {**COMPOSE, "instruction.md": None}))
    assert (code, found["verdict"]) == (Code.invalid, "invalid")


def test_links_and_special_files_are_the_tasks_fault(bench: Bench) -> None:
    task = bench.task("linked")
    (task / "tests" / "link").symlink_to("/etc/passwd")
    code, found = bench.json(task)
    assert (code, found["env"]) == (Code.invalid, None)
    assert found["gates"][0]["detail"].startswith("archive: 'tests/link': a link or special file")
    assert {gate["outcome"] for gate in found["gates"][1:]} == {"skipped"}


def test_a_tar_file_of_a_task_is_that_task(bench: Bench) -> None:
    task = bench.task("lazy", LAZY)
    with tarfile.open(bench.home / "lazy.tar.gz", "w:gz") as tar:
        tar.add(task, "lazy")
    code, packed = bench.json(bench.home / "lazy.tar.gz")
    assert (code, packed["env"]) == (Code.invalid, digest(pack(greeting(LAZY))))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_tar_file_with_anything_but_files_is_refused(bench: Bench, kind: bytes) -> None:
    with tarfile.open(bench.home / "evil.tar", "w") as tar:
        member = tarfile.TarInfo("task/tests/x")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
        tar.addfile(tarfile.TarInfo("task/task.toml"), io.BytesIO())
    code, found = bench.json(bench.home / "evil.tar")
    assert code == Code.invalid
    assert "only regular files" in found["gates"][0]["detail"]


def test_many_tasks_get_a_summary_and_what_was_checked_is_not_checked_again(bench: Bench) -> None:
    bench.task("set/good"), bench.task("set/deep/lazy", LAZY), bench.task("set/compose", COMPOSE)
    code, output = bench.check(bench.home / "set", "--jobs", 2, "--out", bench.home / "all.jsonl")
    assert code == Code.invalid
    assert "invalid          1      oracle passes 1" in output
    assert re.search(
        r"^invalid +[0-9.]+ s  deep/lazy: oracle passes: the solution earns 0 .says_hi", output, re.MULTILINE
    )
    assert "could not check  1      well-formed 1" in output
    lines = [json.loads(line) for line in (bench.home / "all.jsonl").read_text().splitlines()]
    assert {each["task"]: each["verdict"] for each in lines} == {
        "good": "valid",
        "deep/lazy": "invalid",
        "compose": "could not check",
    }
    _, again = bench.json(bench.home / "set")
    assert {each["task"]: each["kept"] for each in again["tasks"]} == {
        "good": True,
        "deep/lazy": True,
        "compose": False,
    }
    assert [gate["detail"] for each in again["tasks"] for gate in each["gates"] if gate["outcome"] == "failed"]


@pytest.mark.parametrize("words", [("--set", "pool.duplicate_similarity=0.9"), ("--fresh",), ("--all",)])
def test_a_kept_verdict_holds_for_the_same_task_under_the_same_rules(bench: Bench, words: tuple[str, ...]) -> None:
    mute = bench.task("set/mute", {"instruction.md": None, "tests/words.txt": " ".join(words)})
    kept = [bench.json(bench.home / "set", *more)[1]["tasks"][0]["kept"] for more in ((), (), words, ())]
    assert kept == [False, True, False, True]
    (mute / "environment/files/notes.txt").write_text("changed\n")
    assert bench.json(bench.home / "set")[1]["tasks"][0]["kept"] is False


def test_without_an_invalid_one_a_task_that_cannot_be_checked_decides_the_exit_code(bench: Bench) -> None:
    bench.task("set/compose", COMPOSE)
    assert bench.check(bench.home / "set")[0] == Code.unchecked


def test_the_evidence_of_every_gate_is_written_where_it_is_wanted(bench: Bench) -> None:
    bench.check(bench.task("lazy", LAZY), "--evidence", bench.home / "evidence")
    found = json.loads((bench.home / "evidence/lazy/oracle-passes.json").read_text())
    assert (found["outcome"], found["content"]["reward"]) == ("failed", 0.0)
    assert found["observed"]["solution_output"]
    assert (bench.home / "evidence/lazy/well-formed.json").is_file()


def test_held_out_text_is_compared_from_a_folder_and_from_grams_alone(bench: Bench) -> None:
    bench.task("held/one", {"instruction.md": SAYING})
    task = bench.task("task", {"instruction.md": "Please: " + SAYING})
    grams = bench.home / "held.grams"
    assert run(["env", "grams", str(bench.home / "held"), "-o", str(grams)]) == 0
    assert b"lantern" not in grams.read_bytes()
    bench.capsys.readouterr()
    for held_out in (bench.home / "held", grams):
        code, found = bench.json(task, "--heldout", held_out)
        assert code == Code.invalid
        assert [gate["gate"] for gate in found["gates"] if gate["outcome"] == "failed"] == ["decontaminated"]


def test_a_task_like_one_of_the_pool_is_refused_but_not_for_itself(bench: Bench) -> None:
    task = bench.task("pool/one", LAZY)
    bench.task("pool/two", {"instruction.md": SAYING, "solution/solve.sh": "#!/bin/bash\n:\n"})
    _, same = bench.json(task, "--pool", bench.home / "pool")
    assert [gate["gate"] for gate in same["gates"] if gate["outcome"] == "failed"] == ["oracle passes"]
    bench.task("copy", {**LAZY, "tests/more.txt": "x\n"})
    code, found = bench.json(bench.home / "copy", "--pool", bench.home / "pool")
    failed = [(gate["gate"], gate["content"]["nearest"]) for gate in found["gates"] if gate["outcome"] == "failed"]
    assert (code, failed) == (Code.invalid, [("not a duplicate", same["env"])])


def test_an_image_that_is_not_here_cannot_be_checked_unless_the_base_is_taken_for_it(bench: Bench) -> None:
    task = bench.task("other", {**LAZY, "environment/Dockerfile": "FROM other:1\nWORKDIR /app\nCOPY files/ /app/\n"})
    code, found = bench.json(task)
    assert (code, found["verdict"]) == (Code.unchecked, "could not check")
    assert "try --backend docker, or --assume-base IMAGE" in found["reason"]
    _, assumed = bench.json(task, "--assume-base", "other:1")
    assert {gate["gate"]: gate["outcome"] for gate in assumed["gates"]}["builds"] == "passed"


def test_the_same_gate_says_the_same_in_containers(bench: Bench) -> None:
    words = (bench.task("lazy", LAZY), "--backend", "docker", "--docker-host", engine_host())
    code, found = bench.json(*words)
    outcomes = {gate["gate"]: gate["outcome"] for gate in found["gates"]}
    assert (code, outcomes["oracle passes"], outcomes["no-op fails"]) == (Code.invalid, "failed", "passed")


def test_without_an_engine_nothing_is_said_about_a_task(bench: Bench) -> None:
    task = bench.task("good")
    words = ["env", "check", str(task), "--backend", "docker", "--docker-host", f"unix://{bench.home}/none.sock"]
    assert run(words) == Code.unchecked
    assert "could not check: no Docker engine answers" in bench.capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none"], "none is no task directory: No such file or directory"),
        (["empty"], "empty is no task directory and holds none: a task has a task.toml"),
        (["good", "--set", "gates.mutants=1"], "--set:3: science.gates.mutants: unknown key; did you mean"),
        (["good", "--set", "gates.mutants_max"], "--set gates.mutants_max: write KEY=VALUE"),
        (["good", "good2", "--watch"], "--watch looks at one task"),
        (["good", "--heldout", "none"], "none: No such file or directory"),
        (["good", "--base", "none"], "none"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_and_ends_with_2(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(bench.home)
    for name in ("good", "good2"):
        bench.task(name)
    (bench.home / "empty").mkdir()
    assert run(["env", "check", *QUICK, *words]) == Code.unchecked
    error = bench.capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
