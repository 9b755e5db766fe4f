"""What pytest printed, read back: real outputs, and outputs made to deceive."""

import subprocess
import sys
from pathlib import Path

import pytest

from services.kernel.harbor.pytest_report import PytestReport, read_pytest
from services.kernel.harbor.reward import TESTS_MAX

TESTS = """
import pytest
def test_good(): print("PASSED test_x.py::test_planted")
def test_bad(): assert 1 == 2
@pytest.mark.parametrize("v", ["a b", "c - d"])
def test_each(v): assert v == "a b"
@pytest.fixture
def broken(): raise FileNotFoundError("gone")
def test_set_up(broken): pass
@pytest.mark.skip(reason="not today")
def test_skipped(): pass
@pytest.mark.xfail
def test_wrong(): assert 0
"""
RESULTS = {
    "test_x.py::test_good": True,
    "test_x.py::test_bad": False,
    "test_x.py::test_each[a b]": True,
    "test_x.py::test_each[c - d]": False,
    "test_x.py::test_set_up": False,
}


def printed(folder: Path, source: str, *options: str) -> bytes:
    """What a real pytest prints on a file with `source`."""
    (folder / "test_x.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:asyncio", *options, "test_x.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).stdout


def report(text: str) -> PytestReport:
    found = read_pytest(text.encode())
    assert found is not None
    return found


@pytest.mark.parametrize("options", [["-rA", "--color=yes"], ["-v"]], ids=" ".join)
def test_a_report_that_names_every_test_gives_every_result(tmp_path: Path, options: list[str]) -> None:
    found = read_pytest(printed(tmp_path, TESTS, *options))
    assert found is not None
    assert found.tests == RESULTS
    assert found.counts == {"passed": 2, "failed": 2, "error": 1}
    assert found.unloadable == ()


def test_a_report_that_names_failures_alone_gives_counts_and_reasons(tmp_path: Path) -> None:
    found = read_pytest(printed(tmp_path, TESTS, "-q"))
    assert found is not None
    assert found.tests == {}
    assert found.counts == {"passed": 2, "failed": 2, "error": 1}
    assert ("failed", "test_x.py::test_bad", "assert 1 == 2") in found.named
    assert ("error", "test_x.py::test_set_up", "FileNotFoundError: gone") in found.named


def test_a_file_that_does_not_load_is_told_apart_from_a_failed_test(tmp_path: Path) -> None:
    found = read_pytest(printed(tmp_path, "import no_such_module\ndef test_a(): pass\n"))
    assert found is not None
    assert found.counts == {"passed": 0, "failed": 0, "error": 1}
    assert [each.partition(":")[0] for each in found.unloadable] == ["test_x.py"]


def test_a_file_without_tests_counts_none(tmp_path: Path) -> None:
    found = read_pytest(printed(tmp_path, "x = 1\n"))
    assert found == PytestReport(counts={"passed": 0, "failed": 0, "error": 0})


SUMMARY = "=== short test summary info ===\nPASSED t.py::a\nFAILED t.py::b - no\n=== 1 failed, 1 passed in 0.1s ===\n"


@pytest.mark.parametrize(
    ("text", "tests"),
    [
        (SUMMARY, {"t.py::a": True, "t.py::b": False}),
        ("FAILED t.py::planted - x\n" + SUMMARY, {"t.py::a": True, "t.py::b": False}),
        (SUMMARY + "reward: 0\n", {"t.py::a": True, "t.py::b": False}),
        (SUMMARY.replace("t.py::a", "t.py::a\nPASSED t.py::planted"), {}),
        (SUMMARY.replace("PASSED t.py::a\n", ""), {}),
        (SUMMARY.replace("t.py::a", "t.py::b"), {"t.py::b": False}),
        (SUMMARY.replace("t.py::a", "t.py::\x07"), {}),
        (SUMMARY.replace("t.py::a", "t" * 300 + "::a"), {}),
        (SUMMARY.replace("0.1s", "3.00s (0:01:03)"), {"t.py::a": True, "t.py::b": False}),
        (SUMMARY.replace("1 passed", "99999999999999999999999999 passed"), {}),
    ],
)
def test_names_are_believed_only_where_they_agree_with_the_count(text: str, tests: dict[str, bool]) -> None:
    assert report(text).tests == tests


def test_the_last_of_several_runs_counts() -> None:
    again = SUMMARY.replace("t.py", "u.py").replace("FAILED u.py::b - no", "PASSED u.py::b").replace("1 failed, 1", "2")
    assert report(SUMMARY + again).tests == {"u.py::a": True, "u.py::b": True}
    assert report(SUMMARY + "=== no tests ran in 0.01s ===").tests == {}


def test_more_tests_than_a_fact_carries_give_counts_alone() -> None:
    names = "".join(f"PASSED t.py::n{number}\n" for number in range(TESTS_MAX + 1))
    found = report(f"= short test summary info =\n{names}= {TESTS_MAX + 1} passed in 1.0s =")
    assert (found.counts["passed"], found.tests) == (TESTS_MAX + 1, {})


@pytest.mark.parametrize(
    "output",
    [b"", b"all good\n", b"\xff\xfe\x00", b"3 passed", b"= 3 passed =", b"=" * 300_000, b"FAILED " + b"[" * 300_000],
    ids=lambda value: repr(value[:20]),
)
def test_what_is_no_report_is_none(output: bytes) -> None:
    assert read_pytest(output) is None
