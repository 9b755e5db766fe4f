"""Whatever comes in, a parser answers with its own error or with something sane; nothing else ever escapes."""

import json
import math
import tomllib

from hypothesis import given
from hypothesis import strategies as st

from services.kernel.agent.normaliser import SHOWN_BYTES_MIN, show_v1
from services.kernel.agent.transcript import TranscriptError, decode_content, decode_observation
from services.kernel.archive import FileEntry
from services.kernel.harbor.config import TaskConfig, read_config
from services.kernel.harbor.dockerfile import DockerfileError, From, parse
from services.kernel.harbor.reward import RewardError, parse_ctrf, parse_reward_json, parse_reward_text
from services.kernel.harbor.task import read_task
from services.kernel.harbor.write import task_toml
from tests.support.harbor_tasks import TOML, greeting

WORDS = st.sampled_from(
    [
        *(
            "RUN",
            "COPY",
            "ENV",
            "WORKDIR",
            "USER",
            "FROM",
            "A=1",
            "--chmod=755",
            "$A",
            "${A}",
            "${A:-x}",
            "${",
            "'",
            '"',
        ),
        *(
            "\\",
            "\\\n",
            "\n",
            " ",
            "#",
            "[",
            '["a", "b"]',
            "<<EOF",
            "..",
            "/",
            "/app/",
            "é",
            "\0",
            "\t",
            "*",
            "--from=x",
        ),
    ]
)
DOCKERFILES = st.lists(WORDS, max_size=30).map(lambda words: "FROM b\n" + " ".join(words))
NUMBERS = st.text("0123456789.eE+-_ naif", max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["reward", "x", "tests"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(DOCKERFILES)
def test_a_dockerfile_parses_or_is_refused(text: str) -> None:
    try:
        steps = parse(text)
    except DockerfileError:
        return
    assert steps[0] == From("b")


@given(st.binary(max_size=200) | NUMBERS.map(str.encode))
def test_a_text_reward_is_in_bounds_or_refused(raw: bytes) -> None:
    try:
        reward = parse_reward_text(raw)
    except RewardError:
        return
    assert 0.0 <= reward <= 1.0
    assert set(raw.strip()) <= set(b"0123456789.")


@given(
    st.binary(max_size=200)
    | JSON.map(json.dumps).map(str.encode)
    | NUMBERS.map(lambda n: b'{"reward": %s}' % n.encode())
)
def test_a_json_reward_is_in_bounds_or_refused(raw: bytes) -> None:
    try:
        reward, metrics = parse_reward_json(raw)
    except RewardError:
        return
    assert 0.0 <= reward <= 1.0
    assert all(map(math.isfinite, metrics.values()))


@given(st.binary(max_size=200) | JSON.map(json.dumps).map(lambda text: f'{{"results": {{"tests": {text}}}}}'.encode()))
def test_a_report_gives_results_or_none(raw: bytes) -> None:
    assert all(name and isinstance(passed, bool) for name, passed in parse_ctrf(raw).items())


@given(st.binary(max_size=300), st.integers(0, 255), st.integers(SHOWN_BYTES_MIN, 100), st.integers(0, 10**9))
def test_shown_output_is_printable_and_bounded(output: bytes, code: int, bytes_max: int, lost: int) -> None:
    shown = show_v1(output * 3, code, bytes_max, bytes_lost=lost)
    assert len(shown.encode()) <= bytes_max + 60
    assert all(letter in "\n\t" or (ord(letter) >= 0x20 and not 0x7F <= ord(letter) < 0xA0) for letter in shown)


@given(st.binary(max_size=300))
def test_random_bytes_are_no_transcript(raw: bytes) -> None:
    for decode in (decode_content, decode_observation):
        try:
            decode(raw)
        except TranscriptError:
            continue
        raise AssertionError(raw)


@given(
    st.binary(max_size=200)
    | st.text(st.sampled_from('[]="{}.#\n agentverifr0123456789_'), max_size=120).map(str.encode)
)
def test_any_config_is_read_and_any_fault_is_a_problem(raw: bytes) -> None:
    config, problems, _ = read_config(raw)
    assert isinstance(config, TaskConfig)
    if not problems:
        assert read_config(task_toml(config).encode())[1] == []


VALUES = st.sampled_from(
    ["0", "-1", "nan", "inf", "1e400", "true", '""', '"x"', "[]", "{}", "1979-05-27", "9" * 40, "0.5"]
)
KEYS = sorted(
    {line.split(" = ")[0] for line in TOML.splitlines() if " = " in line}
    | {"user", "env", "collect", "gpus", "tpu", "healthcheck", "allow_internet", "memory", "docker_image", "version"}
)


@given(
    st.sampled_from(["agent", "verifier", "environment", "task", "solution", "metadata"]), st.sampled_from(KEYS), VALUES
)
def test_one_odd_value_is_a_problem_or_harmless(table: str, key: str, value: str) -> None:
    lines = [line for line in TOML.splitlines() if not line.startswith(key + " ")]
    place = lines.index(f"[{table}]") + 1 if f"[{table}]" in lines else len(lines)
    lines[place:place] = ([] if f"[{table}]" in lines else [f"[{table}]"]) + [f"{key} = {value}"]
    toml = "\n".join(lines)
    tomllib.loads(toml)
    reading = read_task({**greeting(), "task.toml": FileEntry(toml.encode())})
    assert (reading.task is None) == bool(reading.problems)
    if reading.task is not None:
        limits = reading.task.verifier_limits
        assert all(0 < each < math.inf for each in (limits.cpu_s, limits.memory_bytes_max, limits.disk_bytes_max))
