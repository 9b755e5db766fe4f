"""Joins steps into one task with distractor files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from services.kernel.skills.catalogue import SKILLS
from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Check, FileSpec, Skill, Step, Turn, lines

STEPS_MAX = 4
DISTRACTORS_MAX = 8


@dataclass(frozen=True)
class Task:
    steps: tuple[Step, ...]
    instruction: str
    files: Mapping[str, FileSpec]
    """Sorted by path, relative to /app; distractors included."""

    @property
    def skills(self) -> tuple[str, ...]:
        return tuple(step.skill for step in self.steps)

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step.family for step in self.steps))

    @property
    def build(self) -> tuple[str, ...]:
        return tuple(command for step in self.steps for command in step.build)

    @property
    def turns(self) -> tuple[Turn, ...]:
        return tuple(turn for step in self.steps for turn in step.turns)

    @property
    def checks(self) -> tuple[Check, ...]:
        return tuple(check for step in self.steps for check in step.checks)

    def novice(self, mistaken: Sequence[bool]) -> tuple[Turn, ...]:
        """The reference with a beginner's mistake in the steps marked True (one mark a step)."""
        return tuple(
            turn
            for step, wrong in zip(self.steps, mistaken, strict=True)
            for turn in (step.novice if wrong else step.turns)
        )


def compose(
    rng: Random,
    skills: Sequence[str],
    names: Names,
    *,
    distractors: int = 0,
    catalogue: Mapping[str, Skill] = SKILLS,
) -> Task:
    """One to four steps of different skills in the given order, and files that no step needs.

    Raises:
        ValueError: an unknown or repeated skill, or a count out of bounds.
        NamesExhaustedError: the lexicon is too small for all that.
    """
    if not 1 <= len(skills) <= STEPS_MAX:
        raise ValueError(f"a task has 1 to {STEPS_MAX} steps, not {len(skills)}")
    if len(set(skills)) != len(skills):
        raise ValueError(f"a skill stands twice in {list(skills)}: its checks would share their names")
    if not 0 <= distractors <= DISTRACTORS_MAX:
        raise ValueError(f"a task has 0 to {DISTRACTORS_MAX} distractors, not {distractors}")
    if unknown := [name for name in skills if name not in catalogue]:
        raise ValueError(f"unknown skills {unknown}; known are {sorted(catalogue)}")
    steps = tuple(catalogue[name].draw(rng, names) for name in skills)
    files = {path: spec for step in steps for path, spec in step.files.items()}
    for _ in range(distractors):
        files[names.file()] = FileSpec(lines(names.words(rng.randint(1, 2))).encode())
    return Task(steps, _joined([step.instruction for step in steps]), dict(sorted(files.items())))


def _joined(sentences: Sequence[str]) -> str:
    first, *rest = sentences
    return " ".join([first, *(f"Then {sentence[0].lower()}{sentence[1:]}" for sentence in rest)])
