"""Test results that pytest printed, for verifiers that leave no ctrf.json.

The output is not to be trusted: a test may print lines that look like pytest's own. So only what follows the last
header of the short summary is read, and names are believed only where they agree with the counts of the last line.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from services.kernel.harbor.reward import sane_tests

LINES_MAX = 20_000
"""Looked at from the end."""
LINE_CHARS_MAX = 500

Outcome: TypeAlias = Literal["passed", "failed", "error"]

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_COUNTED = r"\d+ (?:failed|passed|skipped|deselected|xfailed|xpassed|warnings?|errors?|rerun)"
_LAST = re.compile(rf"=* ?(no tests ran|{_COUNTED}(?:, {_COUNTED})*)(?: in [\d.]+s(?:econds)?(?: \([\d:]+\))?) ?=*")
_COUNT = re.compile(r"(\d+) (failed|passed|error)")
_HEADER = re.compile(r"=+ short test summary info =+")
_NAME = r"\S[^\[]*?(?:\[.*?\])?"
_SUMMARY = re.compile(rf"(PASSED|FAILED|ERROR) ({_NAME})(?: - (.*))?")
_VERBOSE = re.compile(rf"({_NAME}) (PASSED|FAILED|ERROR)(?: \(.*\))? +\[ *\d+%\]")


class PytestReport(Struct, frozen=True, kw_only=True):
    """What the last run of pytest in an output says of itself."""

    counts: dict[Outcome, int]
    """From its last line; what is not said there is 0."""
    named: tuple[tuple[Outcome, str, str], ...] = ()
    """Outcome, name, and the first words of why, where the output tells them."""

    @property
    def tests(self) -> dict[str, bool]:
        """Passed or not, by name; empty unless the output names exactly as many tests as it counts."""
        by_outcome: dict[Outcome, set[str]] = {"passed": set(), "failed": set(), "error": set()}
        for outcome, name, _ in self.named:
            by_outcome[outcome].add(name)
        if any(len(names) != self.counts[outcome] for outcome, names in by_outcome.items()):
            return {}
        bad = by_outcome["failed"] | by_outcome["error"]
        return sane_tests([(name, name not in bad) for name in sorted(by_outcome["passed"] | bad)])

    @property
    def unloadable(self) -> tuple[str, ...]:
        """Test files that pytest could not load, with the reason where it is told: their tests were never run."""
        return tuple(
            f"{name}: {why}" if why else name
            for outcome, name, why in self.named
            if outcome == "error" and "::" not in name
        )


def read_pytest(output: bytes) -> PytestReport | None:
    """The report of the last run in `output`; None where there is none."""
    text = _COLOUR.sub("", output.decode("utf-8", "replace"))
    lines = [line.rstrip()[:LINE_CHARS_MAX] for line in text.split("\n")[-LINES_MAX:]]
    end = next((place for place in reversed(range(len(lines))) if _LAST.fullmatch(lines[place])), None)
    if end is None:
        return None
    header = next((place for place in reversed(range(end)) if _HEADER.fullmatch(lines[place])), end)
    named = {(outcome, name): why for outcome, name, why in _summary(lines[header:end])}
    for outcome, name in _verbose(lines[:header]):
        named.setdefault((outcome, name), "")
    return PytestReport(
        counts=_counts(lines[end]), named=tuple((outcome, name, why) for (outcome, name), why in named.items())
    )


def _counts(line: str) -> dict[Outcome, int]:
    found: Mapping[str, int] = {word: int(number[:9]) for number, word in _COUNT.findall(line)}
    return {"passed": found.get("passed", 0), "failed": found.get("failed", 0), "error": found.get("error", 0)}


def _summary(lines: Iterable[str]) -> Iterable[tuple[Outcome, str, str]]:
    for line in lines:
        if match := _SUMMARY.fullmatch(line):
            yield _outcome(match[1]), match[2], match[3] or ""


def _verbose(lines: Iterable[str]) -> Iterable[tuple[Outcome, str]]:
    for line in lines:
        if (match := _VERBOSE.fullmatch(line)) and "::" in match[1]:
            yield _outcome(match[2]), match[1]


def _outcome(word: str) -> Outcome:
    return cast("Outcome", word.lower())
