"""What the corpus knows of a fault: the gate that must find it, and the healthy task that differs in nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass

from services.kernel.archive import digest, pack
from services.kernel.heldout.grams import HeldOutText, build_grams, read_grams
from services.kernel.workshop import Workshop
from services.validator.gates.gate import Case
from services.validator.gates.likeness import sketch_of
from tests.support.corpus_shapes import Text, Texts, but, files_of


@dataclass(frozen=True)
class Known:
    """One fault. `faulty` is refused by `gate` with `says` in the detail; `twin` goes through all gates."""

    gate: str
    name: str
    faulty: Texts | bytes
    """Files, or an archive's bytes where files cannot be so."""
    twin: Texts
    says: str = ""
    held_out: tuple[str, ...] = ()
    pool: tuple[Texts, ...] = ()
    """What the faulty one meets there; the twin meets `twin_pool`."""
    twin_pool: tuple[Texts, ...] = ()
    also: tuple[str, ...] = ()
    """Other gates of the same cost class that may see it too."""
    needs: str = ""
    """The variation of surroundings without which the fault does not show; empty where it always does."""

    def __str__(self) -> str:
        return f"{self.gate}: {self.name}"


def changed(
    gate: str,
    name: str,
    base: Texts,
    wrong: Mapping[str, Text | None],
    right: Mapping[str, Text | None],
    says: str = "",
) -> Known:
    """A fault as one change of a healthy task, beside a harmless change of the same kind."""
    return Known(gate, name, but(base, wrong), but(base, right), says)


def archive_of(task: Texts | bytes) -> bytes:
    return task if isinstance(task, bytes) else pack(files_of(task))


def faulty_case(shop: Workshop, known: Known) -> Case:
    return _case(shop, known, known.faulty, known.pool)


def twin_case(shop: Workshop, known: Known) -> Case:
    return _case(shop, known, known.twin, known.twin_pool)


def _case(shop: Workshop, known: Known, task: Texts | bytes, pool: tuple[Texts, ...]) -> Case:
    archive, members = archive_of(task), [files_of(member) for member in pool]
    return Case(
        digest(archive),
        archive,
        shop,
        grams=read_grams(build_grams([HeldOutText(known.held_out)])) if known.held_out else {},
        pool={digest(pack(files)): sketch_of(files) for files in members},
    )
