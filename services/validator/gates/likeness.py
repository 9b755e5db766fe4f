"""The gate `not a duplicate`: MinHash sketches of the four parts of a task, compared with those of the pool.

Each of instruction, fixtures, solution and tests has a sketch of its own, so that the frame which all tests of one
author share weighs no more than a part of a quarter, and a task cannot hide behind one long file. In solution and
tests names of files do not count, so that renaming changes little; what stands in the fixtures does, so that the same
exercise on other data is another task. How the parts add up is said by `schemas.rules.likeness`.
"""

import re
from collections.abc import Iterator, Mapping

from datasketch import MinHash

from schemas.rules import SKETCH_DIGITS, SKETCH_PARTS, SKETCH_PLACES, likeness
from services.kernel.archive import FileEntry
from services.validator.gates.gate import Case, Cost, Finding, Need, failed, passed
from services.validator.gates.leak_secrets import vendored
from services.validator.gates.leak_views import is_text

SEED = 1
SHINGLE_WORDS = 3
LINES_MAX = 20_000
"""Of one part: what comes later is not compared."""
_WORD = re.compile(r"\w+")
_FILE_NAME = re.compile(rb"(?<![\w.])[\w-]*[A-Za-z][\w-]*(\.[A-Za-z][A-Za-z0-9]{0,7})+(?![\w.])")
_NO_FIXTURE = re.compile(rb"(FROM|WORKDIR|COPY|ADD) .*|#.*", re.IGNORECASE)
_DIGIT_MASK = 16**SKETCH_DIGITS - 1
EMPTY = "f" * SKETCH_DIGITS * SKETCH_PLACES
"""The sketch of a part that holds nothing."""


def sketch_of(files: Mapping[str, FileEntry]) -> str:
    """Sketch of fixed size, as hex: the parts in the order of SKETCH_PARTS. Equal tasks have equal sketches."""
    names = _own_names(files)
    parts = {
        "instruction": _instruction(files),
        "fixtures": _fixtures(files),
        "solution": _scripts(files, "solution/", names),
        "tests": _scripts(files, "tests/", names),
    }
    return "".join(_sketch(parts[part]) for part in SKETCH_PARTS)


def _sketch(shingles: Iterator[bytes]) -> str:
    found = sorted({shingle for shingle, _ in zip(shingles, range(LINES_MAX), strict=False)})
    if not found:
        return EMPTY
    minhash = MinHash(num_perm=SKETCH_PLACES, seed=SEED)
    minhash.update_batch(found)
    return "".join(f"{int(value) & _DIGIT_MASK:0{SKETCH_DIGITS}x}" for value in minhash.hashvalues)


def _own_names(files: Mapping[str, FileEntry]) -> re.Pattern[bytes] | None:
    """Matches the names of fixtures, also those that do not look like file names."""
    parts = {part for name in files if name.startswith("environment/files/") for part in name.split("/")[2:]}
    stems = {part.partition(".")[0] for part in parts}
    names = sorted((name for name in parts | stems if len(name) > 1), key=len, reverse=True)
    return re.compile(rf"\b({'|'.join(map(re.escape, names))})\b".encode()) if names else None


def _instruction(files: Mapping[str, FileEntry]) -> Iterator[bytes]:
    text = files.get("instruction.md", FileEntry(b"")).content
    words = [word.lower() for word in _WORD.findall(text.decode("utf-8", "replace"))]
    for start in range(max(1, len(words) - SHINGLE_WORDS + 1)) if words else ():
        yield " ".join(words[start : start + SHINGLE_WORDS]).encode()


def _fixtures(files: Mapping[str, FileEntry]) -> Iterator[bytes]:
    for name, line in _lines(files, "environment/"):
        if not (name == "environment/Dockerfile" and _NO_FIXTURE.fullmatch(line)):
            yield line


def _scripts(files: Mapping[str, FileEntry], folder: str, names: re.Pattern[bytes] | None) -> Iterator[bytes]:
    for _, line in _lines(files, folder):
        if not line.startswith(b"#"):
            nameless = _FILE_NAME.sub(b"F", line)
            yield names.sub(b"F", nameless) if names else nameless


def _lines(files: Mapping[str, FileEntry], folder: str) -> Iterator[tuple[str, bytes]]:
    """Lines of texts, with the name of the file, blanks evened out; another file is one line."""
    libraries = tuple(vendored(files))
    for name, entry in files.items():
        if not name.startswith(folder) or name.startswith(libraries):
            continue
        pieces = entry.content.split(b"\n") if is_text(entry.content) else [entry.content]
        yield from ((name, line) for line in (b" ".join(piece.split()) for piece in pieces) if line)


class NotDuplicate:
    """Unlike every member of the pool, exactly and nearly; the nearest one is named."""

    name = "not a duplicate"
    cost = Cost.comparing
    hidden = False
    needs = (Need.files,)

    async def check(self, case: Case) -> Finding:
        case.sketch = sketch_of(case.files)
        if case.digest in case.pool:
            return failed(f"the pool has this environment: {case.digest[:12]}", nearest=case.digest, similarity=1.0)
        scored = [(likeness(case.sketch, sketch), env) for env, sketch in sorted(case.pool.items())]
        similarity, nearest = max(scored, default=(0.0, None))
        what = {"nearest": nearest, "similarity": similarity, "threshold": case.duplicate_similarity}
        if nearest is not None and similarity >= case.duplicate_similarity:
            return failed(f"like {nearest[:12]} of the pool: similarity {similarity:.2f}", **what)
        return passed(f"nearest {similarity:.2f}", **what)
