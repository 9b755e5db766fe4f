"""Steps of one shape: read what is there, write one file. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from random import Random

from services.kernel.skills.step import FileSpec, Said, Step, bash_text, both, make_step, same


def derived(
    rng: Random,
    skill: str,
    family: str,
    wordings: Sequence[str],
    *,
    files: Mapping[str, str | FileSpec],
    target: str,
    right: str,
    turns: Sequence[Said],
    novice: Sequence[Said],
    build: Sequence[str] = (),
    kept: str | None = None,
) -> Step:
    """The target has to hold `right`, and what it was made from has to stay: `kept` in bash, by default all `files`.

    No check is passed by an answer that only is there.
    """
    checks = {"right": same(target, right)}
    first, _, rest = right.partition("\n")
    if rest:
        checks["starts_right"] = f'[ -f {target} ] && [ "$(head -n 1 {target})" = {bash_text(first)} ]'
    kept = kept or " && ".join(unchanged(path, item) for path, item in files.items())
    checks["source_kept"] = both(checks.get("starts_right", checks["right"]), kept)
    wording = rng.choice(wordings)
    return make_step(skill, family, wording, files=files, turns=turns, novice=novice, checks=checks, build=build)


def changed(
    rng: Random,
    skill: str,
    family: str,
    wordings: Sequence[str],
    *,
    files: Mapping[str, str | FileSpec],
    target: str,
    right: str,
    part: tuple[str, str],
    turns: Sequence[Said],
    novice: Sequence[Said],
) -> Step:
    """One of `files` has to become `right`; `part` is the name of a check for the change alone, and that check."""
    name, expression = part
    others = [unchanged(path, item) for path, item in files.items() if path != target]
    checks = {name: expression, "right": same(target, right)}
    if others:
        checks["rest_kept"] = both(checks["right"], " && ".join(others))
    return make_step(skill, family, rng.choice(wordings), files=files, turns=turns, novice=novice, checks=checks)


def unchanged(path: str, item: str | FileSpec) -> str:
    """True when a fixture is as it was; bytes that are no text are compared by their SHA-256."""
    if isinstance(item, str):
        return same(path, item)
    return f'[ "$(sha256sum < {path})" = "{hashlib.sha256(item.content).hexdigest()}  -" ]'


def shuffled(rng: Random, items: Sequence[str]) -> list[str]:
    """In another order than the sorted one."""
    order = list(items)
    rng.shuffle(order)
    return order[::-1] if order == sorted(order) else order
