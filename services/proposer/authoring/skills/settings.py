"""Configuration files: look up, set, lay over one another, strip."""

from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, lines
from services.proposer.authoring.skills.derive import changed, derived, shuffled

FAMILY = "config"


def _ini(rng: Random, names: Names) -> tuple[dict[str, dict[str, int]], str]:
    """Two or three sections with the same two keys, and the text."""
    sections = {name: _ports(rng) for name in names.words(rng.randint(2, 3))}
    return sections, _ini_text(sections)


def _ports(rng: Random) -> dict[str, int]:
    return {"port": rng.randint(2000, 8999), "limit": rng.randint(20, 99)}


def _ini_text(sections: dict[str, dict[str, int]]) -> str:
    return "\n".join(
        f"[{name}]\n" + lines([f"{key} = {value}" for key, value in keys.items()]) for name, keys in sections.items()
    )


def ini_get(rng: Random, names: Names) -> Step:
    source, target = names.file("ini"), names.file()
    sections, text = _ini(rng, names)
    section, key = rng.choice(list(sections)), rng.choice(("port", "limit"))
    return derived(
        rng,
        "ini_get",
        FAMILY,
        (
            f"Write the value of {key} in the section {section} of {source} to {target}.",
            f"Look up {key} in section [{section}] of {source} and save only its value to {target}.",
        ),
        files={source: text},
        target=target,
        right=f"{sections[section][key]}\n",
        turns=[rf"sed -n '/^\[{section}\]/,/^$/s/^{key} = //p' {source} > {target}"],
        novice=[f"grep {key} {source} > {target}"],
    )


def ini_set(rng: Random, names: Names) -> Step:
    target = names.file("ini")
    sections, text = _ini(rng, names)
    section, key, new = rng.choice(list(sections)), rng.choice(("port", "limit")), rng.randint(10000, 19999)
    right = _ini_text({**sections, section: {**sections[section], key: new}})
    return changed(
        rng,
        "ini_set",
        FAMILY,
        (
            f"Set {key} in the section {section} of {target} to {new} and leave the other sections alone.",
            f"Change {key} to {new} in section [{section}] of {target}, and nowhere else.",
        ),
        files={target: text},
        target=target,
        right=right,
        part=("set", rf"sed -n '/^\[{section}\]/,/^$/p' {target} | grep -qx '{key} = {new}'"),
        turns=[rf"sed -i '/^\[{section}\]/,/^$/s/^{key} = .*/{key} = {new}/' {target}"],
        novice=[f"sed -i 's/^{key} = .*/{key} = {new}/' {target}"],
    )


def env_overlay(rng: Random, names: Names) -> Step:
    plain, over, target = names.file("env"), names.file("env"), names.file("env")
    keys = [word.upper() for word in names.words(4)]
    first = {key: rng.randint(10, 49) for key in shuffled(rng, keys[:3])}
    second = {key: rng.randint(50, 99) for key in shuffled(rng, keys[1:])}
    merged = first | second
    return derived(
        rng,
        "env_overlay",
        FAMILY,
        (
            f"Write the settings of {plain} to {target}, sorted by key, with those of {over} taking their place "
            "where both set a key or only it does.",
            f"Merge {plain} and {over} into {target}, sorted by key; where both set a key {over} wins.",
        ),
        files={
            plain: lines([f"{key}={value}" for key, value in first.items()]),
            over: lines([f"{key}={value}" for key, value in second.items()]),
        },
        target=target,
        right=lines([f"{key}={merged[key]}" for key in sorted(merged)]),
        turns=[f"sort -u -t= -k1,1 {over} {plain} > {target}"],
        novice=[f"sort {over} {plain} > {target}"],
    )


def config_strip(rng: Random, names: Names) -> Step:
    source, target = names.file("conf"), names.file("conf")
    settings = [f"{word} {rng.randint(10, 99)}" for word in names.words(4)]
    text = f"# {names.word()}\n{settings[0]}\n\n{settings[1]}\n# {names.word()}\n{settings[2]}\n\n{settings[3]}\n"
    return derived(
        rng,
        "config_strip",
        FAMILY,
        (
            f"Save {source} without comment lines and empty lines to {target}.",
            f"Copy only the lines of {source} that are neither empty nor comments to {target}.",
        ),
        files={source: text},
        target=target,
        right=lines(settings),
        turns=[f"grep -v -e '^#' -e '^$' {source} > {target}"],
        novice=[f"grep -v '^#' {source} > {target}"],
    )


SKILLS = (
    Skill("ini_get", FAMILY, ini_get, level=2),
    Skill("ini_set", FAMILY, ini_set, level=3),
    Skill("env_overlay", FAMILY, env_overlay, level=3),
    Skill("config_strip", FAMILY, config_strip, level=2),
)
