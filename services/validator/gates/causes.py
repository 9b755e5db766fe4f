"""Why a grading that did not earn everything did not: tests that failed, or tests that could not be run.

Read from what the verifier reports and prints. The reference solution has earned its reward on the same image, so a
test that was run and failed, with whatever exception, found the work undone. What was never run says nothing.
"""

import re
from enum import StrEnum

from services.kernel.harbor.grade import Grade
from services.kernel.harbor.pytest_report import PytestReport, read_pytest

REASON_CHARS_MAX = 200


class Cause(StrEnum):
    assertion = "assertion"
    """At least one test was run and failed."""
    environment = "error of the environment"
    """Tests were not run: none collected, a file that does not load, no runner."""
    unknown = "unknown"
    """The verifier reports no tests, and prints nothing that tells."""


_SET_UP = re.compile(r"(ModuleNotFoundError|ImportError|SyntaxError|NameError)\b")
"""Errors of a fixture that no missing work explains."""
_NETWORK = re.compile(
    rb"(?:could not resolve host|temporary failure in name resolution|temporary failure resolving|"
    rb"network is unreachable|name or service not known|failed to lookup address|dns error)[^\n]*",
    re.IGNORECASE,
)
_RUNNERS = (
    b"pytest|python3?|pip3?|uvx?|node|npm|npx|jest|mocha|bats|ctest|make|cmake|go|cargo|rustc|mvn|gradle|javac?|ruby|"
    b"rspec|perl|php|curl|wget|apt-get|apk"
)
_NO_RUNNER = (
    re.compile(rb"[^\n]*\b(?:" + _RUNNERS + rb"): (?:command )?not found[^\n]*"),
    re.compile(rb"[^\n]*No module named '?pytest\b[^\n]*"),
    re.compile(rb"[^\n]*test\.sh: line \d+: syntax error[^\n]*"),
)


def why_it_failed(grade: Grade) -> tuple[Cause, str]:
    """The cause, and what shows it (at most REASON_CHARS_MAX characters)."""
    report = read_pytest(grade.output)
    if report is not None and (reason := _not_run(report)):
        return Cause.environment, reason[:REASON_CHARS_MAX]
    if failed := sorted(name for name, good in grade.tests.items() if not good):
        return Cause.assertion, ", ".join(failed)[:REASON_CHARS_MAX]
    if report is not None and report.counts["failed"] + report.counts["error"]:
        return Cause.assertion, f"{report.counts['failed'] + report.counts['error']} tests"
    if not grade.tests and (reason := network_asked(grade.output) or _no_runner(grade.output)):
        return Cause.environment, reason
    return Cause.unknown, "the verifier reports no tests"


def network_asked(output: bytes) -> str | None:
    """The line that shows that a program wanted the network, which no sandbox gives."""
    found = _NETWORK.search(output)
    return f"asks for the network: {_line(found[0])}" if found else None


def _not_run(report: PytestReport) -> str | None:
    if report.unloadable:
        return f"a test file does not load: {report.unloadable[0]}; read and import inside tests what is to be made"
    if not any(report.counts.values()):
        return "no test was run: none collected, or all skipped"
    errors = [why for outcome, _, why in report.named if outcome == "error"]
    if not report.counts["failed"] and errors and all(_SET_UP.match(why) for why in errors):
        return f"no test gets past its set-up: {errors[0]}"
    return None


def _no_runner(output: bytes) -> str | None:
    for pattern in _NO_RUNNER:
        if found := pattern.search(output):
            return f"the tests could not be run: {_line(found[0])}"
    return None


def _line(raw: bytes) -> str:
    text = "".join(letter if letter.isprintable() else " " for letter in raw.decode("utf-8", "replace"))
    return text.strip()[: REASON_CHARS_MAX // 2]
