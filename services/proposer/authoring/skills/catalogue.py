"""Catalogues that a procedural brain chooses from: the shipped model's skills, and a wider one."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from services.kernel.skills.catalogue import SKILLS
from services.kernel.skills.step import Skill
from services.proposer.authoring.skills import (
    analysis,
    binaries,
    checksums,
    databases,
    dates,
    encodings,
    history,
    joins,
    links,
    patches,
    patterns,
    repair,
    schedules,
    settings,
    tables,
    units,
    validation,
)

_WIDER = (
    checksums,
    links,
    settings,
    schedules,
    patches,
    repair,
    patterns,
    tables,
    encodings,
    units,
    dates,
    joins,
    databases,
    validation,
    binaries,
    history,
    analysis,
)


@dataclass(frozen=True, eq=False)
class Catalogue:
    skills: Mapping[str, Skill]
    """By name, in a fixed order."""

    @cached_property
    def families(self) -> tuple[str, ...]:
        """In catalogue order."""
        return tuple(dict.fromkeys(skill.family for skill in self.skills.values()))

    def of_family(self, family: str) -> tuple[str, ...]:
        return tuple(name for name, skill in self.skills.items() if skill.family == family)

    def of_check(self, check: str) -> str | None:
        """The skill that a check's name tells of, or None for a check of no skill in here."""
        name = check.partition("__")[0]
        return name if name in self.skills else None


WIDER: Mapping[str, Skill] = {skill.name: skill for module in _WIDER for skill in module.SKILLS}
CORE = Catalogue(SKILLS)
WIDE = Catalogue({**SKILLS, **WIDER})
