"""What a brain knows when it starts: the order it got and what the workspace tells about the solver. Pure."""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.proposer.authoring.skills.catalogue import CORE, Catalogue

SOLVED_RATE = 0.75
"""A skill counts as solved when each of its tests passed in at least this share of the rollouts."""
_LESSON = re.compile(r"learned ([a-z_+]+) (too_easy|too_hard|flat|solved|unsolved)\b")
_EASY, _HARD = frozenset({"too_easy", "solved"}), frozenset({"too_hard", "unsolved"})


class OrderError(ValueError):
    """assignment.json does not say what to write."""


@dataclass(frozen=True)
class Order:
    direction: str
    domain: str
    seed: int
    round: int = 0
    slot: int = 0
    revision: int = 0
    parent: str | None = None
    focus: str | None = None
    """Skill of the solver's commonest failure on the parent: the next environment has to test it."""
    evidence_kind: str | None = None
    evidence_detail: str = ""
    evidence_focus: str | None = None
    """Skill that failed most often in the calibration of the draft before."""

    @property
    def gate(self) -> str:
        """Name of the gate that failed the draft before, or nothing."""
        return self.evidence_detail.partition(":")[0] if self.evidence_kind == "gate" else ""


@dataclass(frozen=True)
class Record:
    parent: tuple[str, ...] = ()
    """Skills of the parent's steps."""
    previous: tuple[str, ...] = ()
    """Skills of the draft that this revision answers for."""
    solved: frozenset[str] = frozenset()
    unsolved: frozenset[str] = frozenset()
    notes: Mapping[str, int] = field(default_factory=dict)
    """From memory: how much more often a skill was found easy than hard."""

    def easy(self, skill: str) -> bool:
        return skill in self.solved or (skill not in self.unsolved and self.notes.get(skill, 0) > 0)


def read_order(text: str, catalogue: Catalogue = CORE) -> Order:
    """Raises:
    OrderError: no JSON object, or no direction or seed in it.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise OrderError(f"assignment.json is no JSON: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("seed"), int):
        raise OrderError("assignment.json holds no object with a whole number as seed")
    if found.get("direction") not in {"simpler", "harder", "new"}:
        raise OrderError(f"direction is {found.get('direction')!r}, not simpler, harder or new")
    evidence = found.get("evidence")
    evidence = evidence if isinstance(evidence, dict) else {}
    return Order(
        direction=found["direction"],
        domain=str(found.get("domain", "any")),
        seed=found["seed"],
        round=_count(found.get("round")),
        slot=_count(found.get("slot")),
        revision=_count(found.get("revision")),
        parent=found["parent"] if isinstance(found.get("parent"), str) else None,
        focus=_skill(catalogue, found.get("commonest_failure")),
        evidence_kind=str(evidence["kind"]) if "kind" in evidence else None,
        evidence_detail=str(evidence.get("detail", "")),
        evidence_focus=_skill(catalogue, evidence.get("commonest_failure")),
    )


def read_skills(manifest: str, catalogue: Catalogue = CORE) -> tuple[str, ...]:
    """Known skills of a task.toml that this brain or its like wrote; nothing for any other."""
    try:
        listed = tomllib.loads(manifest).get("metadata", {}).get("skills", [])
    except tomllib.TOMLDecodeError:
        return ()
    return tuple(dict.fromkeys(name for name in listed if isinstance(name, str) and name in catalogue.skills))


def read_tally(text: str, catalogue: Catalogue = CORE) -> tuple[tuple[str, ...], frozenset[str], frozenset[str]]:
    """From `{test: [passed, rollouts]}`: all skills tested, those solved, those that never passed whole."""
    try:
        tally = json.loads(text)
    except ValueError:
        return (), frozenset(), frozenset()
    rates: dict[str, float] = {}
    for name, (passed, total) in tally.items():
        skill = catalogue.of_check(name)
        if skill is not None and total:
            rates[skill] = min(rates.get(skill, 1.0), passed / total)
    solved = frozenset(skill for skill, rate in rates.items() if rate >= SOLVED_RATE)
    return tuple(rates), solved, frozenset(skill for skill, rate in rates.items() if rate == 0)


def read_notes(lessons: str) -> dict[str, int]:
    notes: dict[str, int] = {}
    for skills, outcome in _LESSON.findall(lessons):
        for skill in skills.split("+"):
            notes[skill] = notes.get(skill, 0) + (outcome in _EASY) - (outcome in _HARD)
    return notes


def _skill(catalogue: Catalogue, check: object) -> str | None:
    return catalogue.of_check(check) if isinstance(check, str) else None


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
