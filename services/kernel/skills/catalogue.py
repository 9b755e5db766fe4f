"""All skills by name."""

from collections.abc import Mapping
from types import MappingProxyType

from services.kernel.skills import dependent, files, programs, records, system, text
from services.kernel.skills.step import Skill

SKILLS: Mapping[str, Skill] = MappingProxyType(
    {skill.name: skill for module in (files, text, records, system, programs, dependent) for skill in module.SKILLS}
)
FAMILIES: tuple[str, ...] = tuple(dict.fromkeys(skill.family for skill in SKILLS.values()))
"""In catalogue order."""


def skills_of(family: str) -> tuple[str, ...]:
    return tuple(name for name, skill in SKILLS.items() if skill.family == family)


def skill_of_check(check: str) -> str | None:
    """The skill that a check's name tells of, or None for a check that is not ours."""
    name = check.partition("__")[0]
    return name if name in SKILLS else None
