"""Held-out sets as people have them on disk, made into one file of grams."""

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from services.kernel.heldout.grams import GRAM_WORDS, Artifact, GramsError, HeldOutText, build_grams

INSTRUCTION_BYTES_MAX = 2**20
LINES_SUFFIX = ".jsonl"
_GRAMS_BEGIN = b'{"version":'


class _Line(msgspec.Struct, frozen=True):
    """One task of a `.jsonl` file; other keys are passed over."""

    instruction: str


def collect_grams(sets: Iterable[Path], *, gram_words: int = GRAM_WORDS) -> bytes:
    """The grams of all of `sets`, each of which is one of: a folder of tasks in any depth (every `instruction.md`
    counts), a `.jsonl` file (one string, or one object with `instruction`, a line), a file of grams, or any other text
    file, which is one instruction. Links are not followed.

    Raises:
        GramsError: one of them holds no instruction, or what it holds cannot be read.
        OSError: it is not there.
    """
    texts: list[HeldOutText] = []
    known: list[Artifact] = []
    for path in sets:
        if path.is_file() and _holds_grams(path):
            with path.open("rb") as file:
                known.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            continue
        instructions = tuple(_instructions(path))
        if not any(instructions):
            raise GramsError(f"{path} holds no instruction: give a folder of tasks, a .jsonl file or a text file")
        texts.append(HeldOutText(instructions))
    return build_grams(texts, gram_words=gram_words, known=known)


def _instructions(path: Path) -> Iterator[str]:
    if path.is_dir():
        for found in sorted(path.rglob("instruction.md")):
            if found.is_file() and not found.is_symlink():
                yield _text(found)
    elif path.suffix == LINES_SUFFIX:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _of_line(line, f"{path}:{number}")
    else:
        yield _text(path)


def _text(path: Path) -> str:
    if (size := path.stat().st_size) > INSTRUCTION_BYTES_MAX:
        raise GramsError(f"{path} has {size} bytes: an instruction has at most {INSTRUCTION_BYTES_MAX}")
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise GramsError(f"{path} is not UTF-8: {error}") from error


def _of_line(line: bytes, where: str) -> str:
    try:
        said = msgspec.json.decode(line, type=str | _Line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise GramsError(f'{where}: neither a string nor an object with "instruction": {error}') from error
    return said if isinstance(said, str) else said.instruction


def _holds_grams(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_GRAMS_BEGIN)) == _GRAMS_BEGIN
