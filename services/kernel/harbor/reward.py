"""Reads what a verifier left in /logs/verifier, strictly: one finite number in [0, 1], or a reason why there is none.

Harbor reads rewards with Python's float and JSON's defaults: `1_0`, `true`, two rewards in one object or a link to a
host file all pass there. Here they do not.
"""

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from services.kernel.archive import FileEntry

REWARD_BYTES_MAX = 64 * 1024
CTRF_BYTES_MAX = 2**20
METRICS_MAX = 64
TESTS_MAX = 1000
TEST_NAME_CHARS_MAX = 200
TEST_RESULTS_BYTES_MAX = 4096
"""Of all results as JSON: facts carry them, and a plan repeats them for every rollout that it cites."""

_PLAIN = re.compile(r"[0-9]{1,20}(\.[0-9]{1,40})?\Z")
_BLANKS = b" \t\r\n"


class RewardError(Exception):
    """There is no valid reward; the message says what was found."""


class Verdict(Struct, frozen=True):
    """What a verifier said."""

    reward: float
    """In [0, 1]."""
    metrics: dict[str, float] = {}
    """Other numbers of reward.json."""
    tests: dict[str, bool] = {}
    """Passed or not, by name; empty where there is no sane ctrf.json."""


def read_verdict(logs: Path, *, text_only: bool = False) -> Verdict:
    """The verdict in the directory `logs`; reward.json, where there is one, goes before reward.txt. With `text_only`
    there must be none: see `writes_text_only`.

    Raises:
        RewardError: no reward file, or one that is not exactly one finite number in [0, 1].
    """
    raw = _plain_file(logs, "reward.json", REWARD_BYTES_MAX)
    if raw is not None and text_only:
        raise RewardError("reward.json: no test speaks of it; a program that the verifier ran has written it")
    if raw is not None:
        reward, metrics = parse_reward_json(raw)
    else:
        raw = _plain_file(logs, "reward.txt", REWARD_BYTES_MAX)
        if raw is None:
            raise RewardError("no reward file: the verifier wrote neither reward.json nor reward.txt")
        reward, metrics = parse_reward_text(raw), {}
    try:
        ctrf = _plain_file(logs, "ctrf.json", CTRF_BYTES_MAX)
    except RewardError:
        ctrf = None
    return Verdict(reward, metrics, parse_ctrf(ctrf) if ctrf else {})


def writes_text_only(tests: Mapping[str, FileEntry]) -> bool:
    """Whether tests speak of reward.txt and nowhere of reward.json: then what an agent left must have written that."""
    texts = [entry.content for entry in tests.values()]
    return any(b"reward.txt" in text for text in texts) and not any(b"reward.json" in text for text in texts)


def parse_reward_text(raw: bytes) -> float:
    """A plain decimal with blanks around it. Raises RewardError."""
    try:
        return _reward(raw.strip(_BLANKS).decode("ascii"))
    except UnicodeDecodeError as error:
        raise RewardError(f"reward.txt: {raw[:40]!r} is not a plain decimal") from error


def parse_reward_json(raw: bytes) -> tuple[float, dict[str, float]]:
    """`{"reward": x}` and the other numbers in it. Raises RewardError."""
    table = _object(raw)
    if "reward" not in table:
        raise RewardError(f"reward.json: no key 'reward' among {sorted(table)[:5]}")
    if len(table) > METRICS_MAX:
        raise RewardError(f"reward.json: more than {METRICS_MAX} keys")
    metrics = {}
    for name, value in table.items():
        if not isinstance(value, _Number):
            raise RewardError(f"reward.json: {name[:40]!r} is not a number")
        if name != "reward":
            metrics[name] = value.finite()
    return _reward(table["reward"]), metrics


def parse_ctrf(raw: bytes) -> dict[str, bool]:
    """Test results of a CTRF report; empty where it is damaged, names a test twice, or exceeds what a fact carries."""
    try:
        tests = json.loads(raw.decode("utf-8"))["results"]["tests"]
        found = [(test["name"], test["status"]) for test in tests]
    except (ValueError, LookupError, TypeError, RecursionError):
        return {}
    if not all(isinstance(word, str) for pair in found for word in pair):
        return {}
    return sane_tests([(name, status == "passed") for name, status in found])


def sane_tests(found: Sequence[tuple[str, bool]]) -> dict[str, bool]:
    """Results by name; empty where a name is odd or occurs twice, or where they exceed what a fact carries."""
    passed = dict(found)
    sane = all(0 < len(name) <= TEST_NAME_CHARS_MAX and name.isprintable() for name in passed)
    if (
        not sane
        or len(found) > min(len(passed), TESTS_MAX)
        or len(msgspec.json.encode(passed)) > TEST_RESULTS_BYTES_MAX
    ):
        return {}
    return passed


class _Number(str):
    """A JSON number as it was written, so that its syntax can be judged."""

    __slots__ = ()

    def finite(self) -> float:
        value = float(self) if len(self) <= 64 else float("inf")
        if value in (float("inf"), float("-inf")):
            raise RewardError(f"reward.json: {self[:40]} is too large")
        return value


def _object(raw: bytes) -> dict[str, Any]:
    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(found)
        if len(table) < len(found):
            raise RewardError("reward.json: a key occurs twice")
        return table

    def constant(name: str) -> Any:
        raise RewardError(f"reward.json: {name} is not a finite number")

    try:
        table = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=pairs,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=constant,
        )
    except (ValueError, RecursionError) as error:
        raise RewardError(f"reward.json: not JSON in UTF-8 ({error})") from error
    if not isinstance(table, dict):
        raise RewardError("reward.json: not an object")
    return table


def _reward(text: str) -> float:
    if not _PLAIN.match(text):
        raise RewardError(f"the reward {text[:40]!r} is not a plain decimal")
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise RewardError(f"the reward {text[:40]} is not in [0, 1]")
    return value


def _plain_file(folder: Path, name: str, bytes_max: int) -> bytes | None:
    """Bytes of a regular file, or None where there is nothing of that name."""
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RewardError(f"{name}: a link or special file, or unreadable ({error.strerror})") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise RewardError(f"{name}: not a plain file with one name")
        if status.st_size > bytes_max:
            raise RewardError(f"{name}: {status.st_size} bytes, more than {bytes_max}")
        return os.read(descriptor, bytes_max)
    finally:
        os.close(descriptor)
