"""The same data written otherwise: base64, hexadecimal, shifted letters."""

import base64
import codecs
from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, lines
from services.proposer.authoring.skills.derive import derived

FAMILY = "encodings"


def base64_open(rng: Random, names: Names) -> Step:
    source, target = names.file("b64"), names.file()
    text = lines(names.words(3))
    return derived(
        rng,
        "base64_open",
        FAMILY,
        (f"Decode the base64 text in {source} into {target}.", f"Save what {source} holds in base64 to {target}."),
        files={source: base64.b64encode(text.encode()).decode() + "\n"},
        target=target,
        right=text,
        turns=[f"base64 -d {source} > {target}"],
        novice=[f"base64 {source} > {target}"],
    )


def hex_to_decimal(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    numbers = [rng.randint(160, 65535) for _ in range(4)]
    return derived(
        rng,
        "hex_to_decimal",
        FAMILY,
        (
            f"Write the hexadecimal numbers of {source} in decimal to {target}, one a line.",
            f"Convert each line of {source} from hexadecimal to decimal and save the numbers to {target}.",
        ),
        files={source: lines([f"0x{number:x}" for number in numbers])},
        target=target,
        right=lines(numbers),
        turns=[f"printf '%d\\n' $(cat {source}) > {target}"],
        novice=[f"sed 's/^0x//' {source} > {target}"],
    )


def decimal_to_bits(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    numbers = [rng.randint(5, 255) for _ in range(4)]
    return derived(
        rng,
        "decimal_to_bits",
        FAMILY,
        (
            f"Write the numbers of {source} in binary, each with eight digits, to {target}.",
            f"Convert each line of {source} from decimal to eight binary digits and save them to {target}.",
        ),
        files={source: lines(numbers)},
        target=target,
        right=lines([f"{number:08b}" for number in numbers]),
        turns=[f'python3 -c \'for n in open("{source}"): print(f"{{int(n):08b}}")\' > {target}'],
        novice=[f'python3 -c \'for n in open("{source}"): print(f"{{int(n):b}}".zfill(9))\' > {target}'],
    )


def letters_turned(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    text = lines(names.words(3))
    return derived(
        rng,
        "letters_turned",
        FAMILY,
        (
            f"Save {source}, which is encoded with rot13, decoded to {target}.",
            f"Decode {source} by moving each letter 13 places on in the alphabet, and save it to {target}.",
        ),
        files={source: codecs.encode(text, "rot13")},
        target=target,
        right=text,
        turns=[f"tr a-z n-za-m < {source} > {target}"],
        novice=[f"tr a-m n-z < {source} > {target}"],
    )


def bytes_as_hex(rng: Random, names: Names) -> Step:
    source, target = names.file(), names.file()
    text = lines(names.words(2))
    return derived(
        rng,
        "bytes_as_hex",
        FAMILY,
        (
            f"Write the bytes of {source} as hexadecimal digits on one line without blanks to {target}.",
            f"Save a hex dump of {source}, two digits a byte and nothing else, to {target}.",
        ),
        files={source: text},
        target=target,
        right=text.encode().hex() + "\n",
        turns=[f"od -An -v -tx1 {source} | tr -d ' \\n' > {target}"],
        novice=[f"od -An -v -tx1 {source} > {target}"],
    )


SKILLS = (
    Skill("base64_open", FAMILY, base64_open, level=2),
    Skill("hex_to_decimal", FAMILY, hex_to_decimal, level=2),
    Skill("decimal_to_bits", FAMILY, decimal_to_bits, level=3),
    Skill("letters_turned", FAMILY, letters_turned, level=2),
    Skill("bytes_as_hex", FAMILY, bytes_as_hex, level=2),
)
