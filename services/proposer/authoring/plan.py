"""Which skills the next environment joins, simpler or harder by the solver's record. Chance: the order's seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from services.kernel.skills.compose import DISTRACTORS_MAX, STEPS_MAX
from services.kernel.skills.lexicon import seeded
from services.kernel.skills.step import Skill
from services.proposer.authoring.order import Order, Record
from services.proposer.authoring.skills.catalogue import CORE, WIDE, Catalogue


@dataclass(frozen=True)
class Style:
    """What makes one procedural brain differ from another."""

    name: str
    steps_new: tuple[int, ...]
    """A new environment's number of steps is drawn from these."""
    distractors_max: int
    same_family: bool
    """Added steps come from the families already there, or from others."""
    focus_first: bool
    """Where the skill that the solver fails stands among the steps."""
    catalogue: Catalogue = CORE


@dataclass(frozen=True)
class Plan:
    skills: tuple[str, ...]
    distractors: int

    @property
    def weight(self) -> int:
        """Grows with every step and with harder skills."""
        return sum(WIDE.skills[name].level for name in self.skills)


@dataclass(frozen=True)
class Trouble:
    """What the drafts of this session ran into: gates failed, and skills that seem to be at fault."""

    tries: int = 0
    duplicate: bool = False
    avoid: frozenset[str] = frozenset()

    def after(self, gate: str, plan: Plan, focus: str | None) -> "Trouble":
        if _same_skills_will_do(gate):
            return replace(self, tries=self.tries + 1, duplicate=True)
        return replace(self, tries=self.tries + 1, avoid=self.avoid | (set(plan.skills) - {focus}))


@dataclass(frozen=True)
class _Choice:
    """One planning: everything that the rules below look at."""

    order: Order
    record: Record
    style: Style
    rng: Random
    avoid: frozenset[str]

    @property
    def skills(self) -> Mapping[str, Skill]:
        return self.style.catalogue.skills

    def level(self, name: str) -> int:
        return self.skills[name].level

    def as_hard_as(self, name: str) -> Callable[[str], bool]:
        return lambda other: self.level(other) == self.level(name)

    def one(self, names: Sequence[str]) -> str:
        """A family first, then a skill of it, so that large families do not crowd out small ones."""
        families = list(dict.fromkeys(self.skills[name].family for name in self.skills if name in names))
        family = self.rng.choice(families)
        return self.rng.choice([name for name in names if self.skills[name].family == family])

    def other(self, taken: Sequence[str], fits: Callable[[str], bool]) -> str | None:
        """A skill not taken that fits; of the style's favourite families where there is one."""
        free = [name for name in self.skills if name not in taken and name not in self.avoid and fits(name)]
        families = {self.skills[name].family for name in taken}
        favoured = [name for name in free if (self.skills[name].family in families) == self.style.same_family]
        return self.one(favoured or free) if free else None


def plan_task(order: Order, record: Record, style: Style, trouble: Trouble | None = None) -> Plan:
    """The plan for this order; after trouble in the same session another one."""
    trouble = trouble or Trouble()
    choice = _Choice(order, record, style, random_of(order, style, trouble), trouble.avoid)
    if order.revision == 0:
        skills = _first(choice)
    else:
        opening = replace(choice, rng=random_of(replace(order, revision=0), style, Trouble()))
        skills = _revised(choice, record.previous or _first(opening))
    skills = tuple(_replaced(choice, skills))
    if trouble.duplicate and trouble.tries > 1:
        skills = _longer(choice, skills, lambda name: True)
    skills = _with_focus(choice, skills)
    spare = 0 if order.direction == "simpler" else choice.rng.randint(0, style.distractors_max)
    return Plan(skills, min(DISTRACTORS_MAX, spare + trouble.tries))


def random_of(order: Order, style: Style, trouble: Trouble) -> Random:
    return seeded("authoring", style.name, order.seed, order.revision, trouble.tries)


def _first(choice: _Choice) -> tuple[str, ...]:
    parent = choice.record.parent
    if not parent or choice.order.direction == "new":
        return _new(choice)
    if choice.order.direction == "harder":
        return _harder(choice, parent)
    return (choice.order.focus,) if choice.order.focus else _easier(choice, parent)


def _new(choice: _Choice) -> tuple[str, ...]:
    wanted = choice.style.catalogue.of_family(choice.order.domain) or tuple(choice.skills)
    skills: tuple[str, ...] = (choice.order.focus or choice.one(wanted),)
    count = choice.rng.choice(choice.style.steps_new) + choice.record.easy(skills[0])
    while len(skills) < min(count, STEPS_MAX):
        skills = _longer(choice, skills, lambda name: choice.level(name) <= 2)
    return skills


def _revised(choice: _Choice, before: tuple[str, ...]) -> tuple[str, ...]:
    """The draft before, changed by what was found about it."""
    detail = choice.order.evidence_detail if choice.order.evidence_kind == "calibration" else ""
    if detail == "too_easy":
        return _harder(choice, before)
    if detail == "too_hard":
        if len(before) > 1:
            return _easier(choice, before)
        return _longer(choice, before, lambda name: choice.record.easy(name), lambda name: choice.level(name) == 1)
    if detail == "flat":
        kept = choice.order.evidence_focus or choice.order.focus or before[0]
        return _longer(replace(choice, avoid=choice.avoid | set(before)), (kept,), lambda name: choice.level(name) <= 2)
    if choice.order.evidence_kind == "gate" and not _same_skills_will_do(choice.order.gate):
        return tuple(_replaced(replace(choice, avoid=choice.avoid | set(before)), before))
    return before


def _same_skills_will_do(gate: str) -> bool:
    """Other words and files are enough against a near-duplicate or a shared phrase."""
    return "duplicate" in gate or "contaminat" in gate


def _harder(choice: _Choice, skills: tuple[str, ...]) -> tuple[str, ...]:
    """One more step; from three steps on first a harder skill in place of the easiest."""
    if len(skills) < 3:
        return _longer(choice, skills, lambda name: not choice.record.easy(name), lambda name: True)
    easiest = min((name for name in skills if name != choice.order.focus), key=choice.level)
    harder = choice.other(skills, lambda name: choice.level(name) > choice.level(easiest))
    if harder is None:
        return _longer(choice, skills, lambda name: True)
    return tuple(harder if name == easiest else name for name in skills)


def _easier(choice: _Choice, skills: tuple[str, ...]) -> tuple[str, ...]:
    """Without the hardest step; a lone step becomes an easier skill of its family where there is one."""
    keep = {choice.order.focus, choice.order.evidence_focus} & set(skills)
    if len(skills) > 1:
        droppable = [name for name in skills if name not in keep] or [
            name for name in skills if name != choice.order.focus
        ]
        hardest = max(droppable, key=lambda name: (name not in choice.record.solved, choice.level(name)))
        return tuple(name for name in skills if name != hardest)
    only = choice.skills[skills[0]]
    easier = [name for name in choice.style.catalogue.of_family(only.family) if choice.level(name) < only.level]
    return (choice.rng.choice(easier),) if easier and only.name != choice.order.focus else skills


def _longer(choice: _Choice, skills: tuple[str, ...], *fits: Callable[[str], bool]) -> tuple[str, ...]:
    """One more step by the first rule that any skill fits; the same where there is no room."""
    if len(skills) >= STEPS_MAX:
        return skills
    for fit in fits:
        if (added := choice.other(skills, fit)) is not None:
            return (*skills, added)
    return skills


def _replaced(choice: _Choice, skills: tuple[str, ...]) -> list[str]:
    """Skills to avoid give way to others of the same level; the focus stays."""
    left = list(skills)
    for index, name in enumerate(skills):
        if name in choice.avoid and name != choice.order.focus:
            left[index] = choice.other(left, choice.as_hard_as(name)) or name
    return left


def _with_focus(choice: _Choice, skills: tuple[str, ...]) -> tuple[str, ...]:
    focus = choice.order.focus
    if focus is None:
        return skills
    rest = tuple(name for name in skills if name != focus)[: STEPS_MAX - 1]
    if focus not in skills and choice.order.direction == "simpler" and choice.order.revision == 0:
        rest = ()
    return (focus, *rest) if choice.style.focus_first else (*rest, focus)
