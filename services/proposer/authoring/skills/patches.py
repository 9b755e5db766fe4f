"""Differences between texts: make, apply and take back patches, find what was added."""

from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, bash_text, both, lines, make_step, same
from services.proposer.authoring.skills.derive import derived

FAMILY = "patches"


def _versions(rng: Random, names: Names) -> tuple[list[str], list[str], int]:
    """Old and new lines that differ in one place, and that place."""
    old = list(names.words(5))
    place = rng.randrange(1, 4)
    return old, [*old[:place], names.word(), *old[place + 1 :]], place


def _patch(file: str, old: list[str], new: list[str], place: int) -> str:
    changes = [f"-{old[place]}", f"+{new[place]}"]
    before, after = ([f" {line}" for line in part] for part in (old[:place], old[place + 1 :]))
    return lines([f"--- {file}", f"+++ {file}", f"@@ -1,{len(old)} +1,{len(new)} @@", *before, *changes, *after])


def patch_apply(rng: Random, names: Names) -> Step:
    return _patched(
        rng,
        names,
        "patch_apply",
        ("Apply the patch {patch} to {target}.", "Change {target} as the unified diff {patch} says."),
        reverse=False,
    )


def patch_undo(rng: Random, names: Names) -> Step:
    return _patched(
        rng,
        names,
        "patch_undo",
        (
            "Take the patch {patch}, which was applied to {target}, back.",
            "Undo in {target} what the unified diff {patch} changed.",
        ),
        reverse=True,
    )


def _patched(rng: Random, names: Names, skill: str, wordings: tuple[str, ...], *, reverse: bool) -> Step:
    target, patch = names.file(), names.file("patch")
    old, new, place = _versions(rng, names)
    text = _patch(target, old, new, place)
    found, right = (new, old) if reverse else (old, new)
    swapped = f"grep -qx {right[place]} {target} && ! grep -q {found[place]} {target}"
    return make_step(
        skill,
        FAMILY,
        rng.choice(wordings).format(patch=patch, target=target),
        files={target: lines(found), patch: text},
        turns=[f"patch -s{' -R' if reverse else ''} {target} {patch}"],
        novice=[f"cat {patch} >> {target}"],
        checks={
            "line_changed": swapped,
            "right": same(target, lines(right)),
            "patch_kept": both(swapped, same(patch, text)),
        },
    )


def patch_make(rng: Random, names: Names) -> Step:
    before, after, target = names.file(), names.file(), names.file("diff")
    old, new, place = _versions(rng, names)
    made = f'[ -f {target} ] && [ "$(patch -u -s -r - -o - {before} {target})" = {bash_text(chr(10).join(new))} ]'
    return make_step(
        "patch_make",
        FAMILY,
        rng.choice(
            (
                f"Write a unified diff that turns {before} into {after} to {target}.",
                f"Save the differences from {before} to {after} as a unified diff in {target}.",
            )
        ),
        files={before: lines(old), after: lines(new)},
        turns=[f"diff -u {before} {after} > {target} || [ $? = 1 ]"],
        novice=[f"diff -u {after} {before} > {target} || [ $? = 1 ]"],
        checks={
            "turns_old_into_new": made,
            "tells_the_change": f"grep -qx -e -{old[place]} {target} && grep -qx +{new[place]} {target}",
            "sources_kept": both(made, f"{same(before, lines(old))} && {same(after, lines(new))}"),
        },
    )


def lines_added(rng: Random, names: Names) -> Step:
    before, after, target = names.file(), names.file(), names.file()
    old = list(names.words(4))
    added = list(names.words(rng.randint(2, 3)))
    new = rng.sample([*old[1:], *added], len(old) - 1 + len(added))
    return derived(
        rng,
        "lines_added",
        FAMILY,
        (
            f"Write the lines of {after} that {before} does not have to {target}, in their order.",
            f"Save what {after} has and {before} has not, line by line and in order, to {target}.",
        ),
        files={before: lines(old), after: lines(new)},
        target=target,
        right=lines([line for line in new if line in added]),
        turns=[f"grep -vxFf {before} {after} > {target}"],
        novice=[f"grep -vxFf {after} {before} > {target}"],
    )


SKILLS = (
    Skill("patch_apply", FAMILY, patch_apply),
    Skill("patch_undo", FAMILY, patch_undo, level=2),
    Skill("patch_make", FAMILY, patch_make, level=2),
    Skill("lines_added", FAMILY, lines_added, level=2),
)
