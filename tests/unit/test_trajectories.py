"""Trajectories of other agents are read strictly, bounded, and told in one form."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.cli.outcome import CliError
from services.cli.trajectories import FILES_MAX, STEPS_MAX, TEXT_BYTES_MAX, read_trajectories, read_trajectory


def atif(*steps: dict[str, Any], **more: Any) -> bytes:
    numbered = [{"step_id": number, **step} for number, step in enumerate(steps, start=1)]
    agent = {"name": "terminus", "version": "2"}
    return json.dumps({"schema_version": "ATIF-v1.6", "agent": agent, "steps": numbered, **more}).encode()


def call(id_: str = "c1") -> dict[str, Any]:
    return {"tool_call_id": id_, "function_name": "bash", "arguments": {"command": "ls"}}


ASKED = {"source": "user", "message": "count the lines"}
ANSWERED = {
    "source": "agent",
    "message": [{"type": "text", "text": "looking"}, {"type": "image", "source": {"path": "x.png"}}],
    "tool_calls": [call()],
    "observation": {"results": [{"source_call_id": "c1", "content": "\x1b[31ma.txt\x1b[0m\r\n"}]},
    "metrics": {"prompt_tokens": 3, "completion_token_ids": [1, 2]},
}


def told(content: bytes) -> dict[str, Any]:
    found = json.loads(read_trajectory(content, "x.json"))
    assert isinstance(found, dict)
    return found


def test_atif_is_told_as_what_was_said_called_and_answered() -> None:
    assert told(atif(ASKED, ANSWERED)) == {
        "format": "ATIF-v1.6",
        "agent": "terminus",
        "steps_left_out": 0,
        "steps": [
            {"source": "user", "message": "count the lines", "calls": [], "results": []},
            {"source": "agent", "message": "looking", "calls": ['bash {"command":"ls"}'], "results": ["a.txt"]},
        ],
    }


def test_mini_swe_agent_is_told_in_the_same_form() -> None:
    messages = [
        {"role": "system", "content": "you are"},
        {"role": "user", "content": "count"},
        {"role": "assistant", "content": "```bash\nls\n```", "extra": {"cost": 1}},
        {"role": "user", "content": "<output>a.txt</output>", "timestamp": 1.5},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "function": {"name": "bash", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "done", "tool_call_id": "1"},
    ]
    found = told(json.dumps({"trajectory_format": "mini-swe-agent-1.1", "info": {}, "messages": messages}).encode())
    assert [(step["source"], step["message"], step["calls"], step["results"]) for step in found["steps"]] == [
        ("system", "you are", [], []),
        ("user", "count", [], []),
        ("agent", "```bash\nls\n```", [], []),
        ("environment", "", [], ["<output>a.txt</output>"]),
        ("agent", "", ["bash {}"], []),
        ("environment", "", [], ["done"]),
    ]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"{", "no JSON"),
        (b"[]", "no ATIF trajectory"),
        (b"[" * 100_000, "no JSON"),
        (atif(), "no ATIF trajectory"),
        (atif(ASKED, schema_version="ATIF-v2.0"), "no ATIF trajectory"),
        (atif(ASKED, surprise=1), "unknown field `surprise`"),
        (atif({**ASKED, "surprise": 1}), "unknown field `surprise`"),
        (atif({**ASKED, "step_id": 2}), "step 1 has step_id 2"),
        (atif({**ASKED, "tool_calls": [call()]}), "only an agent calls tools"),
        (atif({**ANSWERED, "tool_calls": [call("other")]}), "a call that it did not make"),
        (b'{"trajectory_format": "mini-swe-agent-2", "messages": [{"role": "user"}]}', "no mini-swe-agent"),
        (b'{"trajectory_format": "mini-swe-agent-1", "messages": [{"role": "robot"}]}', "no mini-swe-agent"),
    ],
)
def test_what_is_in_neither_form_is_refused_with_the_reason(content: bytes, what: str) -> None:
    with pytest.raises(CliError, match=r"x\.json") as refused:
        read_trajectory(content, "x.json")
    assert what in str(refused.value)


def test_long_texts_and_many_steps_are_cut_in_their_middle() -> None:
    long = {"source": "agent", "message": "a" * 10 * TEXT_BYTES_MAX}
    steps = [{"source": "agent", "message": str(number)} for number in range(STEPS_MAX + 30)]
    found = told(atif(long, *steps))
    assert found["steps_left_out"] == 31
    assert len(found["steps"]) == STEPS_MAX
    assert len(found["steps"][0]["message"]) < TEXT_BYTES_MAX + 200
    assert found["steps"][-1]["message"] == str(STEPS_MAX + 29)


def test_a_folder_gives_its_json_files_by_name_and_not_too_many(tmp_path: Path) -> None:
    for name in ("b.json", "a.json", "c.txt"):
        (tmp_path / name).write_bytes(atif({**ASKED, "message": name}))
    found = read_trajectories(tmp_path)
    assert [json.loads(each)["steps"][0]["message"] for each in found] == ["a.json", "b.json"]
    for number in range(FILES_MAX):
        (tmp_path / f"{number}.json").write_bytes(atif(ASKED))
    with pytest.raises(CliError, match="10 trajectories"):
        read_trajectories(tmp_path)
    with pytest.raises(CliError, match="No such file"):
        read_trajectories(tmp_path / "none.json")
