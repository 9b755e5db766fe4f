"""The gate `not a duplicate`: MinHash sketches over instruction, fixtures, solution and tests."""

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256

from datasketch import MinHash

from schemas.rules import likeness
from services.kernel.archive import FileEntry
from services.validator.gates.gate import Case, Cost, Finding, Need, failed, passed

PLACES = 64
"""Hash functions of a sketch: 8 hex digits each. The standard error of the estimate is about 1 / sqrt(64)."""
SEED = 1
SHINGLE_WORDS = 3
_WORD = re.compile(r"\w+")


def sketch_of(files: Mapping[str, FileEntry]) -> str:
    """Sketch of fixed size, as hex. Equal tasks have equal sketches; renamed fixtures alone change it little."""
    minhash = MinHash(num_perm=PLACES, seed=SEED)
    minhash.update_batch(sorted(set(_shingles(files))))
    return "".join(f"{int(value):08x}" for value in minhash.hashvalues)


def _shingles(files: Mapping[str, FileEntry]) -> Iterator[bytes]:
    """Word triples of the instruction, and the lines of fixtures and solution: what sets one task apart from another.
    Tests are left out: their frame is the same in all tasks of one author, and what they check stands in the rest."""
    instruction = files.get("instruction.md", FileEntry(b"", executable=False)).content.decode("utf-8", "replace")
    words = [word.lower() for word in _WORD.findall(instruction)]
    for start in range(max(1, len(words) - SHINGLE_WORDS + 1)):
        yield b"w\0" + " ".join(words[start : start + SHINGLE_WORDS]).encode()
    for name, entry in files.items():
        if name.startswith("environment/files/"):
            yield b"f\0" + name.rpartition("/")[2].encode() + b"\0" + sha256(entry.content).digest()
        elif name == "solution/solve.sh":
            for line in entry.content.splitlines():
                if line.strip():
                    yield b"s\0" + line.strip()


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
