"""A reward is exactly one finite number in [0, 1] in plain writing, or it is no reward."""

import json
import os
from pathlib import Path

import pytest

from services.kernel.harbor.reward import RewardError, Verdict, parse_ctrf, read_verdict


def _read(folder: Path, **files: bytes) -> Verdict:
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_bytes(content)
    return read_verdict(folder)


@pytest.mark.parametrize(
    ("raw", "reward"),
    [
        (b"1", 1.0),
        (b" 0.5 \n", 0.5),
        (b"1\r\n", 1.0),
        (b"0", 0.0),
        (b"0.6667\n", 0.6667),
        (b"1.0000", 1.0),
        (b"00", 0.0),
    ],
)
def test_a_plain_decimal_in_reward_txt_counts(tmp_path: Path, raw: bytes, reward: float) -> None:
    assert _read(tmp_path, reward_txt=raw) == Verdict(reward)


@pytest.mark.parametrize(
    "raw",
    [
        *(b"1_0", "\u0661".encode(), b"nan", b"inf", b"-inf", b"1e309", b"true", b"1,0", b"0\n1\n", b"0 1", b""),
        *(b" \n", b"\xef\xbb\xbf1", b"\xff\xfe", b"-1", b"-0", b"+1", b"1.1", b"1.00000000001", b"2", b".5", b"1."),
        *(b"0x1", b"1e0", b"9" * 400, b"0." + b"1" * 400, b"1\x00", b"1" + b" " * 70_000),
    ],
)
def test_anything_else_in_reward_txt_is_no_reward(tmp_path: Path, raw: bytes) -> None:
    with pytest.raises(RewardError):
        _read(tmp_path, reward_txt=raw)


def test_other_numbers_of_reward_json_are_kept_as_metrics(tmp_path: Path) -> None:
    verdict = _read(tmp_path, reward_json=b'{"style": -2.5e3, "reward": 0.25}')
    assert verdict == Verdict(0.25, {"style": -2500.0})


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"{", b"{}", b"1", b"true", b"null", b'"1"', b"[1]", b'[{"reward": 1}]', b'{"score": 1}', b"\xff"),
        *(b'{"reward": true}', b'{"reward": null}', b'{"reward": "1"}', b'{"reward": [1]}', b'{"reward": {"x": 1}}'),
        *(b'{"reward": NaN}', b'{"reward": Infinity}', b'{"reward": -Infinity}', b'{"reward": 1e400}'),
        *(b'{"reward": 1.5}', b'{"reward": -0}', b'{"reward": 1e0}', b'{"reward": ' + b"1" * 400 + b"}"),
        *(b'{"reward": 0, "reward": 1}', b'{"reward": 1, "x": 1, "x": 2}', b'{"reward": 1, "x": "y"}'),
        *(b'{"reward": 1, "x": NaN}', b'{"reward": 1, "x": 1e999}', b'{"reward": 1, "x": ' + b"1" * 400 + b"}"),
        *(b'\xef\xbb\xbf{"reward": 1}', b"[" * 30_000, b'{"reward": 1}{"reward": 1}', b'{"a": ' * 5000),
        json.dumps({"reward": 1, **{f"k{i}": 0 for i in range(64)}}).encode(),
    ],
)
def test_anything_else_in_reward_json_is_no_reward(tmp_path: Path, raw: bytes) -> None:
    with pytest.raises(RewardError):
        _read(tmp_path, reward_json=raw)


def test_reward_json_goes_first_and_a_broken_one_never_falls_back_to_text(tmp_path: Path) -> None:
    assert _read(tmp_path, reward_json=b'{"reward": 1}', reward_txt=b"0").reward == 1.0
    with pytest.raises(RewardError, match=r"reward\.json"):
        _read(tmp_path, reward_json=b"", reward_txt=b"1")


def test_no_file_is_no_reward(tmp_path: Path) -> None:
    with pytest.raises(RewardError, match="neither"):
        read_verdict(tmp_path)


@pytest.mark.parametrize("name", ["reward.txt", "reward.json"])
def test_links_fifos_directories_and_second_names_are_no_reward(tmp_path: Path, name: str) -> None:
    (tmp_path / "other").write_bytes(b"1")
    logs = tmp_path / "logs"
    logs.mkdir()
    place = logs / name
    place.symlink_to(tmp_path / "other")
    with pytest.raises(RewardError, match="link"):
        read_verdict(logs)
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(RewardError, match="plain file"):
        read_verdict(logs)
    place.unlink()
    place.mkdir()
    with pytest.raises(RewardError, match="plain file"):
        read_verdict(logs)
    place.rmdir()
    place.hardlink_to(tmp_path / "other")
    with pytest.raises(RewardError, match="plain file"):
        read_verdict(logs)


def test_a_terabyte_of_reward_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "reward.txt").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(RewardError, match="more than"):
        read_verdict(tmp_path)


def _ctrf(*tests: object) -> bytes:
    return json.dumps({"results": {"tests": list(tests)}}).encode()


def test_test_results_come_by_name(tmp_path: Path) -> None:
    report = _ctrf({"name": "a", "status": "passed", "duration": 0}, {"name": "b", "status": "skipped"})
    assert _read(tmp_path, reward_txt=b"0.5", ctrf_json=report).tests == {"a": True, "b": False}


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"{", b"[]", b"null", b'{"results": 1}', b'{"results": {"tests": {"a": 1}}}', b"\xff", b"[" * 30_000),
        _ctrf({"name": "a", "status": "passed"}, {"name": "a", "status": "failed"}),
        _ctrf({"name": "", "status": "passed"}),
        _ctrf({"name": "a\x1b[2J", "status": "passed"}),
        _ctrf({"name": "a" * 201, "status": "passed"}),
        _ctrf({"name": 1, "status": "passed"}),
        _ctrf({"name": "a"}),
        _ctrf("a"),
        _ctrf(*({"name": str(i), "status": "passed"} for i in range(1001))),
        _ctrf(*({"name": "\U0001f600" * 100 + str(i), "status": "passed"} for i in range(11))),
    ],
)
def test_a_report_that_is_not_sane_names_no_tests_and_leaves_the_reward(tmp_path: Path, raw: bytes) -> None:
    assert _read(tmp_path, reward_txt=b"1", ctrf_json=raw) == Verdict(1.0)


def test_a_linked_or_huge_report_names_no_tests(tmp_path: Path) -> None:
    (tmp_path / "ctrf.json").symlink_to("/etc/hostname")
    assert _read(tmp_path, reward_txt=b"1").tests == {}
    (tmp_path / "ctrf.json").unlink()
    (tmp_path / "ctrf.json").write_bytes(b" " * 2**20 + _ctrf({"name": "a", "status": "passed"}))
    assert read_verdict(tmp_path).tests == {}
    assert parse_ctrf(_ctrf({"name": "a", "status": "passed"})) == {"a": True}
