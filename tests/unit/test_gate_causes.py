"""Why a grading earned nothing: a test that failed, or tests that nobody could run."""

import pytest

from services.kernel.harbor.grade import Grade
from services.validator.gates.causes import REASON_CHARS_MAX, Cause, network_asked, why_it_failed

ASSERTION, ENVIRONMENT, UNKNOWN = Cause.assertion, Cause.environment, Cause.unknown
HEADER = "= short test summary info =\n"


def grade(output: str, **tests: bool) -> Grade:
    return Grade(reward=0.0, tests=tests, output=output.encode())


@pytest.mark.parametrize(
    ("output", "cause", "reason"),
    [
        (HEADER + "FAILED t.py::a - assert 1 == 2\n= 1 failed in 0.1s =\n", ASSERTION, "1 tests"),
        (HEADER + "FAILED t.py::a - FileNotFoundError: /app/x\n= 1 failed, 1 passed in 0.1s =\n", ASSERTION, "1 tests"),
        (HEADER + "ERROR t.py::a - FileNotFoundError: /app/x\n= 1 error in 0.1s =\n", ASSERTION, "1 tests"),
        (
            HEADER + "ERROR t.py::a - ImportError: no y\n= 1 error in 0.1s =\n",
            ENVIRONMENT,
            "past its set-up: ImportError",
        ),
        (HEADER + "ERROR t.py::a - ImportError: no\nFAILED t.py::b\n= 1 failed, 1 error in 0.1s =\n", ASSERTION, "2"),
        (
            HEADER + "ERROR t.py - ModuleNotFoundError: x\n= 1 error in 0.1s =\n",
            ENVIRONMENT,
            "a test file does not load: t.py: ModuleNotFoundError: x; read and import inside tests what is to be made",
        ),
        ("collected 0 items\n= no tests ran in 0.01s =\n", ENVIRONMENT, "no test was run"),
        ("= 2 skipped in 0.01s =\n", ENVIRONMENT, "no test was run"),
        ("/tests/test.sh: line 3: pytest: command not found\n", ENVIRONMENT, "pytest: command not found"),
        ("/usr/bin/python3: No module named pytest\n", ENVIRONMENT, "No module named pytest"),
        ("/tests/test.sh: line 9: syntax error near `fi'\n", ENVIRONMENT, "syntax error"),
        ("curl: (6) Could not resolve host: example.org\n", ENVIRONMENT, "asks for the network"),
        ("/tests/test.sh: line 3: mytool: command not found\n", UNKNOWN, "reports no tests"),
        ("cat: /app/out: No such file or directory\n", UNKNOWN, "reports no tests"),
        ("", UNKNOWN, "reports no tests"),
    ],
)
def test_the_cause_follows_from_what_is_printed(output: str, cause: Cause, reason: str) -> None:
    found, why = why_it_failed(grade(output))
    assert found is cause
    assert reason in why


def test_a_named_test_that_failed_is_an_assertion_whatever_else_is_printed() -> None:
    found = why_it_failed(grade("python: command not found\n", good=True, bad=False, worse=False))
    assert found == (ASSERTION, "bad, worse")


def test_a_file_that_does_not_load_goes_before_tests_that_failed() -> None:
    output = HEADER + "FAILED t.py::a - x\nERROR u.py - ImportError: y\n= 1 failed, 1 error in 0.1s =\n"
    assert why_it_failed(grade(output, **{"t.py::a": False}))[0] is ENVIRONMENT


@pytest.mark.parametrize("output", ["pytest: not found " + "x" * 9000, "x\x1b[2J python3: command not found\x07"])
def test_a_reason_is_short_and_printable(output: str) -> None:
    cause, reason = why_it_failed(grade(output))
    assert cause is ENVIRONMENT
    assert len(reason) <= REASON_CHARS_MAX
    assert reason.isprintable()


def test_asking_for_the_network_is_seen_in_the_words_of_common_programs() -> None:
    for said in (
        b"curl: (6) Could not resolve host: astral.sh",
        b"W: Failed to fetch x  Temporary failure resolving 'deb.debian.org'",
        b"OSError: [Errno 101] Network is unreachable",
        b"failed to lookup address information: Name or service not known",
    ):
        assert network_asked(b"before\n" + said + b"\nafter") is not None, said
    assert network_asked(b"the network of trains") is None
