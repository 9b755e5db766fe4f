"""Files that are no text: tell them by their first bytes, read numbers in headers, take parts out."""

import struct
from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import FileSpec, Skill, Step, both, lines, make_step
from services.proposer.authoring.skills.derive import derived, unchanged

FAMILY = "headers"
_MAGIC = {"PNG": b"\x89PNG\r\n\x1a\n", "GIF": b"GIF89a", "ZIP": b"PK\x03\x04", "PDF": b"%PDF-1.7\n"}


def _noise(rng: Random, count: int) -> bytes:
    """Bytes that no text has."""
    return bytes(rng.randrange(128, 256) for _ in range(count))


def magic_move(rng: Random, names: Names) -> Step:
    folder, target = names.word(), names.word()
    kinds = rng.sample(list(_MAGIC), 3)
    files = {f"{folder}/{names.word()}.bin": FileSpec(_MAGIC[kind] + _noise(rng, 12)) for kind in kinds}
    place = rng.randrange(3)
    kind, path = kinds[place], list(files)[place]
    moved = unchanged(f"{target}.bin", files[path])
    rest = " && ".join(unchanged(other, item) for other, item in files.items() if other != path)
    return make_step(
        "magic_move",
        FAMILY,
        rng.choice(
            (
                f"Move the file in the folder {folder} that begins like a {kind} file to {target}.bin.",
                f"Find the file with the signature of {kind} in the folder {folder} and move it to {target}.bin.",
            )
        ),
        files=files,
        turns=[
            (f"grep -l {kind if kind != 'ZIP' else 'PK'} {folder}/*", f"{path}\n"),
            f"mv {path} {target}.bin",
        ],
        novice=[f"mv {list(files)[place - 1]} {target}.bin"],
        checks={"moved": moved, "rest_kept": both(moved, f"[ ! -e {path} ] && {rest}")},
    )


def number_at(rng: Random, names: Names) -> Step:
    source, target = names.file("bin"), names.file()
    number, offset = rng.randint(70000, 9999999), rng.choice((4, 6, 8, 12))
    data = _noise(rng, offset) + struct.pack("<I", number) + _noise(rng, 6)
    return derived(
        rng,
        "number_at",
        FAMILY,
        (
            f"Write the number that the four bytes from offset {offset} of {source} make, little-endian and "
            f"unsigned, to {target}.",
            f"Read an unsigned 32-bit little-endian number at byte {offset} of {source} and save it in decimal to "
            f"{target}.",
        ),
        files={source: FileSpec(data)},
        target=target,
        right=f"{number}\n",
        turns=[f"od -An --endian=little -tu4 -j{offset} -N4 {source} | tr -d ' ' > {target}"],
        novice=[f"od -An --endian=big -tu4 -j{offset} -N4 {source} | tr -d ' ' > {target}"],
    )


def body_cut(rng: Random, names: Names) -> Step:
    source, target = names.file("bin"), names.file()
    size, text = rng.randint(9, 40), lines(names.words(3))
    return derived(
        rng,
        "body_cut",
        FAMILY,
        (
            f"Save {source} without its first {size} bytes to {target}.",
            f"Cut the header of {size} bytes off {source} and write the text behind it to {target}.",
        ),
        files={source: FileSpec(_noise(rng, size) + text.encode())},
        target=target,
        right=text,
        turns=[f"tail -c +{size + 1} {source} > {target}"],
        novice=[f"tail -c {size} {source} > {target}"],
    )


def records_named(rng: Random, names: Names) -> Step:
    source, target = names.file("bin"), names.file()
    words = names.words(3)
    data = b"".join(word.encode().ljust(8, b"\0") + _noise(rng, 4) for word in words)
    return derived(
        rng,
        "records_named",
        FAMILY,
        (
            f"Write the names in {source}, which has records of 12 bytes that begin with a name, to {target}, "
            "one a line.",
            f"Pull the words out of the binary file {source} and save them in their order, one a line, to {target}.",
        ),
        files={source: FileSpec(data)},
        target=target,
        right=lines(words),
        turns=[f"grep -aoE '[a-z]+' {source} > {target}"],
        novice=[f"grep -aoE '^[a-z]+' {source} > {target}"],
    )


SKILLS = (
    Skill("magic_move", FAMILY, magic_move, level=3, turns_min=2),
    Skill("number_at", FAMILY, number_at, level=3),
    Skill("body_cut", FAMILY, body_cut, level=2),
    Skill("records_named", FAMILY, records_named, level=2),
)
