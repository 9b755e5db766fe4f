"""The gate `well-formed`: what can be told from the files alone."""

import unicodedata
from collections.abc import Iterable, Mapping

from services.kernel.archive import ArchiveError, FileEntry, unpack
from services.kernel.harbor.config import Problem
from services.kernel.harbor.task import read_task
from services.validator.gates.gate import Case, Cost, Finding, failed, passed

SHOWN_MAX = 8
"""Kinds of problem, and places of one kind, shown in a detail; the evidence has all."""


class WellFormed:
    """Schema 1.4, finite limits above zero, no links or odd names, no CR in scripts, and runnable by this backend."""

    name = "well-formed"
    cost = Cost.reading
    hidden = False
    needs = ()

    async def check(self, case: Case) -> Finding:
        try:
            case.files = unpack(case.archive)
        except ArchiveError as error:
            return failed(f"archive: {error}", problems=[str(error)])
        reading = read_task(case.files)
        problems = _said([*reading.problems, *name_clashes(case.files)])
        unsupported = _said(reading.unsupported)
        implicit = [problem.where for problem in reading.implicit]
        if problems or unsupported or reading.task is None:
            shown = _shown([*reading.problems, *name_clashes(case.files), *reading.unsupported])
            return failed(shown, problems=problems, unsupported=unsupported)
        case.task = reading.task
        return passed(f"implicit limits: {', '.join(implicit)}" if implicit else "", implicit=implicit)


def name_clashes(files: Mapping[str, FileEntry]) -> list[Problem]:
    """Names that are one where a file system ignores case or letter forms: there one file would overwrite the other."""
    found: dict[str, str] = {}
    problems = []
    for name in files:
        parts = name.split("/")
        for depth in range(1, len(parts) + 1):
            path = "/".join(parts[:depth])
            first = found.setdefault(unicodedata.normalize("NFKC", path).casefold(), path)
            if first != path:
                problems.append(Problem("name_clash", path, f"differs from {first!r} in case or form of letters only"))
    return list(dict.fromkeys(problems))


def _said(problems: Iterable[Problem]) -> list[str]:
    return [f"{problem.code}: {problem.where}: {problem.message}" for problem in problems]


def _shown(problems: Iterable[Problem]) -> str:
    """One clause for all places that have the same thing wrong."""
    places: dict[tuple[str, str], list[str]] = {}
    for problem in problems:
        places.setdefault((problem.code, problem.message), []).append(problem.where)
    clauses = [f"{code}: {', '.join(_some(where))}: {message}" for (code, message), where in places.items()]
    return "; ".join(_some(clauses))


def _some(words: list[str]) -> list[str]:
    left = len(words) - SHOWN_MAX
    return [*words[:SHOWN_MAX], f"and {left} more"] if left > 0 else words
