"""Grams of a large held-out set: time and memory to collect them, and to look an instruction up.

Run: `python -m benchmarks.decontamination [INSTRUCTIONS]` (default 100000; about a minute). The text is synthetic:
random words, 30 to 210 an instruction, so that every gram is kept; real sets share text and are smaller.
"""

import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from benchmarks.figures import machine
from services.kernel.heldout.grams import GRAM_WORDS, Grams, HeldOutText, build_grams, open_grams, shared_grams

VOCABULARY = 20_000
WORDS = (30, 210)
LOOKUPS = 2_000


def instruction(rng: Random, vocabulary: list[str]) -> str:
    return " ".join(rng.choices(vocabulary, k=rng.randint(*WORDS)))


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(count: int) -> None:
    about = machine()
    print(f"{about.date}, {about.cores} cores ({about.cpu}), load {about.load_before:.1f} before")
    rng = Random(0)
    vocabulary = [f"w{number:x}" for number in range(VOCABULARY)]
    texts = tuple(instruction(rng, vocabulary) for _ in range(count))
    before_mib = peak_mib()
    began_s = time.perf_counter()
    artifact = build_grams([HeldOutText(texts)])
    print(f"collect {count} instructions: {time.perf_counter() - began_s:.1f} s on one core")
    print(f"artifact {len(artifact) / 2**20:.0f} MiB; peak memory {peak_mib():.0f} MiB, {before_mib:.0f} before")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "grams")
        path.write_bytes(artifact)
        del artifact
        began_s = time.perf_counter()
        grams = open_grams(path)
        opened_s = time.perf_counter() - began_s
        print(f"open the file: {1000 * opened_s:.1f} ms, {sum(map(len, grams.values()))} digests")
        _look_up(rng, vocabulary, texts, grams)


def _look_up(rng: Random, vocabulary: list[str], texts: tuple[str, ...], grams: Grams) -> None:
    fresh = [instruction(rng, vocabulary) for _ in range(LOOKUPS)]
    planted = [f"{text} {' '.join(rng.choice(texts).split()[:GRAM_WORDS])}" for text in fresh]
    for label, asked, expected in (("clean", fresh, 0), ("with one gram planted", planted, LOOKUPS)):
        times, hits = [], 0
        for text in asked:
            began_s = time.perf_counter()
            hits += bool(shared_grams(text, grams))
            times.append(time.perf_counter() - began_s)
        assert hits == expected, f"{hits} of {LOOKUPS} {label} were hits"
        print(f"look up one {label}: median {1e6 * statistics.median(times):.0f} us, {hits} of {LOOKUPS} hit")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
