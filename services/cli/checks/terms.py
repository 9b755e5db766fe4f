"""What a verdict rests on besides the task: rules, held-out grams, a pool to be unlike, base and backend."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.identity import digest_of, list_digest
from schemas.science import Science
from services.cli.checks.target import Target, find_targets
from services.cli.heldout import held_out
from services.cli.outcome import CliError, warn
from services.cli.profiles import profile_text
from services.kernel.archive import ArchiveError, digest, unpack
from services.kernel.heldout.collect import collect_grams
from services.kernel.heldout.grams import GRAM_WORDS, Grams, GramsError, build_grams, read_grams
from services.kernel.runfile import read_runfile
from services.validator.gates.gate import Case
from services.validator.gates.likeness import sketch_of


@dataclass(frozen=True)
class Terms:
    science: Science
    grams: Grams
    pool: Mapping[str, str]
    """Sketches by environment."""
    basis: Mapping[str, object]
    """All of this in short, for the key of a kept verdict."""
    all_gates: bool = False

    def case(self, archive: bytes, workshop: Any) -> Case:
        return Case(
            digest(archive),
            archive,
            workshop,
            grams=self.grams,
            pool=self.pool,
            duplicate_similarity=self.science.pool.duplicate_similarity,
            rules=self.science.gates,
        )


def read_terms(arguments: argparse.Namespace, targets: Iterable[Target]) -> Terms:
    """From the words of the command. Raises CliError, RunFileError."""
    science = read_science(arguments.profile, arguments.set)
    grams = read_heldout(arguments.heldout, science.gates.ngram_words)
    pool = read_pool(arguments.pool, {target.path.resolve() for target in targets})
    rules = {"gates": science.gates, "duplicate_similarity": science.pool.duplicate_similarity}
    basis = {
        "rules": rules,
        "all": arguments.all,
        "heldout": digest_of(grams),
        "pool": list_digest(sorted(pool)),
    }
    return Terms(science, read_grams(grams), pool, basis, arguments.all)


def read_science(profile: str, settings: Iterable[str]) -> Science:
    """A profile with single settings over it, `gates.mutants_max=4`. Raises RunFileError, CliError."""
    lines = [f'science.profile = "{profile}"'] if profile != "default" else []
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise CliError(f"--set {setting}: write KEY=VALUE, as in --set gates.mutants_max=4")
        lines.append(f"science.{key.strip()} = {value.strip()}")
    return read_runfile("\n".join(lines), where="--set", profile=profile_text).science


def read_heldout(paths: Sequence[Path], gram_words: int) -> bytes:
    """Grams of our own held-out sets and of these."""
    known = [held_out(gram_words).grams]
    if paths:
        known.append(collect(paths, gram_words))
    return build_grams((), gram_words=gram_words, known=known)


def collect(paths: Sequence[Path], gram_words: int = GRAM_WORDS) -> bytes:
    """Raises CliError for a set that is not there, or is none."""
    try:
        return collect_grams(paths, gram_words=gram_words)
    except OSError as error:
        raise CliError(f"{error.filename}: {error.strerror}") from error
    except GramsError as error:
        raise CliError(str(error)) from error


def read_pool(folder: Path | None, checked: set[Path]) -> dict[str, str]:
    """Sketches of the tasks below, but for those that are being checked themselves."""
    if folder is None:
        return {}
    pool: dict[str, str] = {}
    for target in find_targets([folder]):
        if target.path.resolve() in checked:
            continue
        try:
            archive = target.archive()
        except (ArchiveError, OSError) as error:
            warn(f"envwheel: {target.path} is left out of the pool: {error}")
            continue
        pool[digest(archive)] = sketch_of(unpack(archive))
    return pool
