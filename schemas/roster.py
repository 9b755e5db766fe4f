"""Who fills a slot: which change of the roster holds, and which of its entries is next. From the log alone."""

from collections.abc import Sequence
from itertools import permutations

from schemas.messages import RosterChanged
from schemas.outcomes import Role
from schemas.parts import RosterEntry

_UNIT = 1_000_000_000
_STEP = 618_033_989
"""Golden ratio: multiples of it, taken modulo the unit, fill every stretch evenly."""


def in_force(changes: Sequence[RosterChanged], role: Role, round_: int) -> RosterChanged | None:
    """Of the changes that hold for a round the one said last: a change at once also undoes what was said for later."""
    held = [each for each in changes if each.role is role and (each.from_round is None or each.from_round <= round_)]
    return held[-1] if held else None


def by_share(entries: Sequence[RosterEntry], number: int) -> RosterEntry:
    """The entry for the slot of that number, so that shares hold in every stretch of slots."""
    place = _spread(number) * sum(entry.share for entry in entries)
    for entry in entries:
        place -= entry.share
        if place < 0:
            return entry
    return entries[-1]


def for_pair(entries: Sequence[RosterEntry], number: int, first: RosterEntry | None) -> RosterEntry:
    """The entry for one slot of the pair of that number. Shares do not count: every two entries meet equally often, and
    each comes first equally often. `first` is who has the other slot, None where nobody has it yet; only where the
    roster has nobody else does it get both.
    """
    couples = list(permutations(entries, 2))
    if not couples:
        return entries[0]
    couple = couples[int(_spread(number) * len(couples))]
    if first is None:
        return couple[0]
    return next((entry for entry in (couple[1], *entries) if not same_maker(entry, first)), couple[1])


def same_maker(one: RosterEntry, other: RosterEntry) -> bool:
    """Equal but for the share of the work."""
    return (one.name, one.model, one.arm, one.rules) == (other.name, other.model, other.arm, other.rules)


def _spread(number: int) -> float:
    return number * _STEP % _UNIT / _UNIT
