"""A Harbor task is read strictly: what Harbor's own loader lets pass is a problem, and every problem is reported."""

import json
import os
import tomllib
from pathlib import Path

import msgspec
import pytest

from services.kernel.archive import FileEntry, digest, pack, write_tree
from services.kernel.harbor.config import TaskConfig, read_config
from services.kernel.harbor.support import resolve_env
from services.kernel.harbor.task import INSTRUCTION_BYTES_MAX, read_task, read_task_dir
from services.kernel.harbor.write import task_files, task_toml
from tests.support.harbor_tasks import TOML, greeting


def test_a_good_task_has_no_problems_and_is_named_by_its_archive() -> None:
    files = greeting()
    reading = read_task(files)
    assert reading.problems == reading.unsupported == reading.implicit == ()
    assert reading.task is not None
    assert reading.task.digest == digest(pack(files))
    assert reading.task.instruction == "Write the word hi into /app/hello.txt.\n"
    assert list(reading.task.part("environment")) == ["Dockerfile", "files/notes.txt"]


def test_the_limits_of_each_phase_follow_from_the_config() -> None:
    task = read_task(greeting()).task
    assert task is not None
    assert (task.agent_limits.cpu_s, task.agent_limits.wall_s) == (20.0, 200.0)
    assert (task.verifier_limits.cpu_s, task.build_limits.cpu_s) == (10.0, 20.0)
    assert task.agent_limits.memory_bytes_max == 256 * 2**20
    assert task.agent_limits.disk_bytes_max == 64 * 2**20


@pytest.mark.parametrize(
    ("toml", "where"),
    [
        ("[agent]\ntimeout_sec = 0", "agent.timeout_sec"),
        ("[agent]\ntimeout_sec = -5", "agent.timeout_sec"),
        ("[agent]\ntimeout_sec = nan", "agent.timeout_sec"),
        ("[verifier]\ntimeout_sec = inf", "verifier.timeout_sec"),
        ("[verifier]\ntimeout_sec = 1e309", "verifier.timeout_sec"),
        ('[agent]\ntimeout_sec = "60"', "agent.timeout_sec"),
        ("[agent]\ntimeout_sec = true", "agent.timeout_sec"),
        ("[environment]\ncpus = 0", "environment.cpus"),
        ("[environment]\nmemory_mb = -1", "environment.memory_mb"),
        ("[environment]\nmemory_mb = 1.5", "environment.memory_mb"),
        ("[environment]\nmemory_mb = " + "9" * 400, "environment.memory_mb"),
        ('[environment]\nmemory = "2GiB"', "environment.memory"),
        ('[environment]\nmemory = "lots"', "environment.memory"),
        ('[environment]\nmemory = "' + "9" * 400 + 'G"', "environment.memory"),
        ("[environment]\nallow_internet = []", "environment.allow_internet"),
        ("[environment]\nallow_internet = 0.0", "environment.allow_internet"),
        ('[environment]\nallow_internet = false\nnetwork_mode = "public"', "environment.allow_internet"),
        ('[environment]\nnetwork_mode = "allowlist"', "environment.allowed_hosts"),
        ('[environment]\nnetwork_mode = "public"\nallowed_hosts = ["a.b"]', "environment.allowed_hosts"),
        ('[environment]\nworkdir = "app"', "environment.workdir"),
        ('[environment]\nworkdir = "/app/../etc"', "environment.workdir"),
        ('[environment]\nworkdir = "/app\\n"', "environment.workdir"),
        ('[agent]\nuser = "x; id"', "agent.user"),
        ('[agent]\nuser = "root\\n"', "agent.user"),
        ("[verifer]\ntimeout_sec = 5", "verifer"),
        ("[verifier]\ntimeout = 5", "verifier.timeout"),
        ('[verifier]\nenvironment_mode = "shared"\n[verifier.environment]\ncpus = 1', "verifier.environment"),
        ("version = 1.0", "schema_version"),
        ('schema_version = "9.9"', "schema_version"),
        ('[task]\nname = "n"', "task.name"),
        ('[task]\nname = "../n"', "task.name"),
        ('[task]\nname = "o/.."', "task.name"),
        ('[task]\nname = "o/' + "n" * 300 + '"', "task.name"),
        ('artifacts = ["../../etc"]', "artifacts"),
        ('artifacts = [{source = "/app/x", destination = "../../x"}]', "artifacts"),
        ('artifacts = ["out.txt"]', "artifacts"),
        ('artifacts = ["/"]', "artifacts"),
        ('artifacts = ["/tests/x"]', "artifacts"),
        ('artifacts = ["/logs"]', "artifacts"),
        ('artifacts = ["//usr/./"]', "artifacts"),
        ('[[steps]]\nname = "A"\n[[steps]]\nname = "a"', "steps"),
        ('[[steps]]\nname = "../x"', "steps"),
        ("[agent]\ntimeout_sec = 1\ntimeout_sec = 2", "task.toml"),
        ("x = " + "[" * 5000, "task.toml"),
    ],
)
def test_a_config_that_harbor_would_take_or_trip_over_is_a_problem(toml: str, where: str) -> None:
    reading = read_task(greeting({"task.toml": toml + "\n"}))
    assert reading.task is None
    assert where in [problem.where for problem in reading.problems]


@pytest.mark.parametrize("raw", [b"\xef\xbb\xbf" + TOML.encode(), TOML.encode() + b"# \xe9\n", b"#" * 65_537])
def test_a_config_that_is_not_plain_toml_is_one_problem(raw: bytes) -> None:
    assert [problem.code for problem in read_task(greeting({"task.toml": raw})).problems] == ["toml"]


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"instruction.md": ""}, "instruction.md"),
        ({"instruction.md": " \n\t\n"}, "instruction.md"),
        ({"instruction.md": b"\xff\xfe\x00"}, "instruction.md"),
        ({"instruction.md": b"\xef\xbb\xbfdo"}, "instruction.md"),
        ({"instruction.md": "do \x1b[2Jit"}, "instruction.md"),
        ({"instruction.md": "# harbor-canary GUID 1\n\n"}, "instruction.md"),
        ({"instruction.md": "a" * (INSTRUCTION_BYTES_MAX + 1)}, "instruction.md"),
        ({"instruction.md": None}, "instruction.md"),
        ({"tests/test.sh": None}, "tests/test.sh"),
        ({"solution/solve.sh": None}, "solution/solve.sh"),
        ({"task.toml": None}, "task.toml"),
        ({"environment/Dockerfile": None, "environment/files/notes.txt": None}, "environment/Dockerfile"),
        ({"environment/Dockerfile": None}, "environment/Dockerfile"),
        ({"tests/test.sh": "#!/bin/bash\r\necho 1\r\n"}, "tests/test.sh"),
        ({"solution/more.sh": b"\xef\xbb\xbf#!/bin/bash\n"}, "solution/more.sh"),
        ({"environment/Dockerfile": "FROM x\r\n"}, "environment/Dockerfile"),
        ({"tests/a\nb": "x"}, ""),
        ({"../x": "x"}, ""),
        ({"tests/big": b"x" * (64 * 2**20)}, ""),
    ],
)
def test_files_that_make_a_task_unusable_are_problems(changes: dict[str, str | bytes | None], where: str) -> None:
    reading = read_task(greeting(changes))
    assert reading.task is None
    assert where in [problem.where for problem in reading.problems]


def test_every_problem_is_reported_not_only_the_first() -> None:
    toml = TOML.replace("20.0", "nan", 1).replace("cpus = 1", "cpus = 0\nspeed = 3")
    reading = read_task(greeting({"task.toml": toml, "instruction.md": "", "tests/test.sh": "a\r\n"}))
    assert {problem.where for problem in reading.problems} == {
        "agent.timeout_sec",
        "environment.cpus",
        "environment.speed",
        "instruction.md",
        "tests/test.sh",
    }


def test_a_script_fixture_with_carriage_returns_is_fair() -> None:
    assert read_task(greeting({"environment/files/mend-me.sh": "a\r\n"})).task is not None


SEPARATE = TOML.replace('"shared"', '"separate"')


@pytest.mark.parametrize(
    ("toml", "where"),
    [
        (TOML.replace('workdir = "/app"', "gpus = 1"), "environment.gpus"),
        (TOML.replace('workdir = "/app"', 'gpu_types = ["h100"]'), "environment.gpus"),
        (TOML.replace('workdir = "/app"', 'tpu = {type = "v5", topology = "2x2"}'), "environment.tpu"),
        (TOML.replace('workdir = "/app"', 'os = "windows"'), "environment.os"),
        (SEPARATE + "[verifier.environment]\ngpus = 1\nnetwork_mode = 'no-network'\n", "verifier.environment.gpus"),
        (SEPARATE + '[[verifier.collect]]\ncommand = "true"\nservice = "db"\n', "artifacts"),
        ("artifacts = [{source = '/x', service = 'db'}]\n" + TOML, "artifacts"),
        (TOML + "[environment.env]\nA = '${HOME}'\n", "environment.env"),
        (TOML + "[solution.env]\nA = '${HOME}'\n", "solution.env"),
        (TOML + '[[steps]]\nname = "one"\n', "steps"),
    ],
)
def test_legal_keys_that_envwheel_cannot_serve_are_reported_as_such(toml: str, where: str) -> None:
    reading = read_task(greeting({"task.toml": toml, "steps/one/instruction.md": "do"}))
    assert reading.task is not None
    assert [(problem.where, problem.message != "") for problem in reading.unsupported] == [(where, True)]


@pytest.mark.parametrize(
    ("name", "toml"),
    [
        ("environment/docker-compose.yaml", TOML),
        ("environment/docker-compose.yml", TOML),
        ("tests/docker-compose.yaml", SEPARATE),
        ("tests/.harborignore", TOML),
        ("solution/deep/.harborignore", TOML),
    ],
)
def test_files_that_envwheel_cannot_serve_are_reported_as_such(name: str, toml: str) -> None:
    reading = read_task(greeting({name: "x\n", "task.toml": toml}))
    assert [problem.where for problem in reading.unsupported] == [name]


def test_files_of_a_mode_that_is_not_used_mean_nothing() -> None:
    files = greeting({"tests/docker-compose.yaml": "x\n", "tests/Dockerfile": "FROM x\n"})
    reading = read_task(files)
    assert (reading.unsupported, reading.notes) == ((), ())
    assert reading.task is not None
    assert (reading.task.separate, reading.task.has_verifier_image) == (False, False)


@pytest.mark.parametrize(
    ("toml", "wheres"),
    [
        (TOML.replace('"no-network"', '"public"'), ["agent", "verifier"]),
        (TOML.replace('network_mode = "no-network"\n', ""), ["agent", "verifier"]),
        (TOML.replace("[agent]", '[agent]\nnetwork_mode = "public"'), ["agent"]),
        (TOML.replace("[verifier]", '[verifier]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.b"]'), ["verifier"]),
        (SEPARATE + "[verifier.environment]\ncpus = 1\n", ["verifier"]),
        (TOML.replace("workdir", 'skills_dir = "/skills"\nworkdir'), ["environment.skills_dir"]),
        (TOML + '[[environment.mcp_servers]]\nname = "m"\n', ["environment.mcp_servers"]),
    ],
)
def test_what_is_done_otherwise_than_asked_is_noted_and_the_task_runs(toml: str, wheres: list[str]) -> None:
    reading = read_task(greeting({"task.toml": toml}))
    assert (reading.problems, reading.unsupported) == ((), ())
    assert [note.where for note in reading.notes] == wheres


@pytest.mark.parametrize(
    "toml",
    [
        TOML + '[environment.healthcheck]\ncommand = "true"\n',
        SEPARATE,
        SEPARATE + "[[verifier.collect]]\ncommand = 'x'\n",
    ],
)
def test_healthchecks_separate_verifiers_and_collect_hooks_are_served(toml: str) -> None:
    reading = read_task(greeting({"task.toml": toml}))
    assert (reading.problems, reading.unsupported, reading.notes) == ((), (), ())


@pytest.mark.parametrize(
    ("toml", "files", "separate", "own_image"),
    [
        (TOML, {}, False, False),
        (TOML.replace('environment_mode = "shared"\n', ""), {}, False, False),
        (SEPARATE, {}, True, False),
        (SEPARATE, {"tests/Dockerfile": "FROM x\n"}, True, True),
        (TOML.replace('environment_mode = "shared"', "[verifier.environment]\ncpus = 1"), {}, True, False),
        (SEPARATE + "[verifier.environment]\ndocker_image = 'x:1'\n", {}, True, True),
    ],
)
def test_the_mode_of_a_verifier_is_that_of_harbor(
    toml: str, files: dict[str, str | bytes | None], separate: bool, own_image: bool
) -> None:
    task = read_task(greeting({"task.toml": toml, **files})).task
    assert task is not None
    assert (task.separate, task.has_verifier_image) == (separate, own_image)


def test_a_separate_verifier_has_the_limits_of_its_own_environment() -> None:
    task = read_task(greeting({"task.toml": SEPARATE + "[verifier.environment]\nmemory_mb = 300\n"})).task
    assert task is not None
    assert (task.verifier_limits.memory_bytes_max, task.agent_limits.memory_bytes_max) == (300 * 2**20, 256 * 2**20)


def test_limits_left_to_defaults_are_named_and_take_harbors_defaults() -> None:
    reading = read_task(greeting({"task.toml": 'schema_version = "1.4"\n[environment]\nnetwork_mode = "no-network"\n'}))
    assert reading.task is not None
    assert [problem.where for problem in reading.implicit] == [
        "agent.timeout_sec",
        "verifier.timeout_sec",
        "environment.build_timeout_sec",
        "environment.cpus",
        "environment.memory_mb",
        "environment.storage_mb",
    ]
    assert reading.task.config.verifier.timeout_sec == 600.0
    assert reading.task.config.agent.timeout_sec is None


def test_deprecated_spellings_are_read_as_harbor_reads_them() -> None:
    config, problems, _ = read_config(b'version = "1.0"\n[environment]\nmemory = "2G"\nallow_internet = false\n')
    assert problems == []
    assert (config.schema_version, config.environment.memory_mb) == ("1.0", 2048)
    assert config.environment.network_mode == "no-network"


def test_leading_canary_lines_are_not_shown_and_are_remembered() -> None:
    task = read_task(greeting({"instruction.md": "<!-- harbor-canary GUID 1 -->\n# x canary GUID 2\n\nreal\r\n"})).task
    assert task is not None
    assert (task.instruction, task.has_canary) == ("real\n", True)


def test_a_directory_gives_the_same_task_as_its_files(tmp_path: Path) -> None:
    write_tree(greeting(), tmp_path)
    read = read_task_dir(tmp_path).task
    assert read is not None
    assert read == read_task(greeting()).task


@pytest.mark.parametrize("name", ["instruction.md", "environment/link", "tests/link", "solution/link"])
def test_a_link_in_a_task_directory_is_a_problem_and_is_not_followed(tmp_path: Path, name: str) -> None:
    write_tree(greeting(), tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to("/etc/hostname")
    assert [problem.code for problem in read_task_dir(tmp_path).problems] == ["tree"]


def test_a_fifo_or_an_odd_name_in_a_task_directory_is_a_problem(tmp_path: Path) -> None:
    write_tree(greeting(), tmp_path)
    os.mkfifo(tmp_path / "tests/p")
    assert "FIFO" in read_task_dir(tmp_path).problems[0].message
    (tmp_path / "tests/p").unlink()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/tests/\xff")).write_bytes(b"")
    assert "not UTF-8" in read_task_dir(tmp_path).problems[0].message


def test_a_missing_directory_is_a_problem(tmp_path: Path) -> None:
    assert read_task_dir(tmp_path / "none").problems[0].code == "tree"


def test_host_variables_resolve_to_their_defaults_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    assert resolve_env({"A": "p-${SECRET:-none}-${B:-}", "C": "$HOME"}) == {"A": "p-none-", "C": "$HOME"}
    with pytest.raises(KeyError, match="SECRET"):
        resolve_env({"A": "${SECRET}"})


def test_what_is_written_reads_back_the_same_with_no_limit_implicit() -> None:
    metadata = {"difficulty": "easy", "tags": ["a", 'q"uote\\'], "nested": {"x y": 1.5, "ok": True}, "del": "\x7f\n"}
    sparse = msgspec.convert({"metadata": metadata, "environment": {"network_mode": "no-network"}}, TaskConfig)
    rest = {name: entry for name, entry in greeting().items() if "/" in name}
    reading = read_task(task_files(sparse, "Do it.\n", rest))
    assert reading.problems == reading.implicit == reading.unsupported == ()
    assert reading.task is not None
    assert reading.task.config.metadata == metadata
    assert reading.task.config.environment.memory_mb == 512
    assert task_toml(reading.task.config) == task_toml(sparse)


def test_lists_of_tables_survive_writing() -> None:
    toml = 'artifacts = ["/a", {source = "/b", exclude = ["*.o"]}]\n[task]\nname = "o/n"\nauthors = [{name = "A"}]\n'
    config, problems, _ = read_config(toml.encode())
    again, problems_again, _ = read_config(task_toml(config).encode())
    assert problems == problems_again == []
    assert (again.artifacts, again.task) == (config.artifacts, config.task)


def test_metadata_that_toml_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="not a finite number"):
        task_toml(TaskConfig(metadata={"x": float("nan")}))


def test_the_schema_accepts_every_key_of_harbors_published_one() -> None:
    """Keys by table, as listed by `harbor task schema` of version 0.26."""
    keys = {
        "": "schema_version task metadata verifier agent environment solution source multi_step_reward_strategy steps "
        "artifacts",
        "environment": "network_mode allowed_hosts build_timeout_sec docker_image os cpus memory_mb storage_mb gpus "
        "gpu_types tpu mcp_servers env skills_dir healthcheck workdir",
        "verifier": "network_mode allowed_hosts timeout_sec env user environment_mode environment collect",
        "agent": "network_mode allowed_hosts timeout_sec user",
    }
    written = msgspec.to_builtins(TaskConfig())
    for table, names in keys.items():
        assert set(written[table] if table else written) == set(names.split())


def test_toml_strings_are_escaped_as_toml_wants() -> None:
    text = "".join(map(chr, range(1, 256))) + "漢\U0001f600"
    read = tomllib.loads(task_toml(TaskConfig(metadata={"x": text})))
    assert read["metadata"]["x"] == text
    assert json.dumps(read)


def test_a_file_and_a_directory_of_one_name_cannot_be_a_task() -> None:
    files = {**greeting(), "tests": FileEntry(b"")}
    assert [problem.code for problem in read_task(files).problems] == ["tree"]
