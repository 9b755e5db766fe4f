"""Gates that only read: well-formed, decontaminated."""

from services.kernel.archive import ArchiveError, unpack
from services.kernel.harbor.task import read_task
from services.kernel.heldout.grams import shared_grams
from services.validator.gates.gate import Case, Cost, Finding, Need, failed, passed

SHOWN_MAX = 8
"""Problems shown in a detail; the evidence has all."""


class WellFormed:
    """Schema 1.4, finite limits above zero, no links or odd names, no CR in scripts, and runnable by this backend."""

    name = "well-formed"
    cost = Cost.reading
    hidden = False
    needs = ()

    async def check(self, case: Case) -> Finding:
        try:
            case.files = unpack(case.archive)
        except ArchiveError as error:
            return failed(f"archive: {error}", problems=[str(error)])
        reading = read_task(case.files)
        problems = [f"{p.code}: {p.where}: {p.message}" for p in (*reading.problems, *reading.unsupported)]
        implicit = [problem.where for problem in reading.implicit]
        if problems or reading.task is None:
            return failed("; ".join(problems[:SHOWN_MAX]), problems=problems)
        case.task = reading.task
        return passed(f"implicit limits: {', '.join(implicit)}" if implicit else "", implicit=implicit)


class Decontaminated:
    """No 13-gram of words shared with a held-out instruction (paper; Tmax: n = 13, stride 1)."""

    name = "decontaminated"
    cost = Cost.reading
    hidden = True
    needs = (Need.task,)

    async def check(self, case: Case) -> Finding:
        shared = shared_grams(case.known_task().instruction, case.grams)
        if shared:
            return failed(f"shares {len(shared)} word sequences with a held-out instruction", shared=shared)
        return passed(f"compared with {sum(map(len, case.grams.values()))} sequences")
