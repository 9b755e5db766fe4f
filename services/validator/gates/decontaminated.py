"""The gate `decontaminated`: nothing of a held-out instruction stands in this one."""

from services.kernel.heldout.grams import shared_grams
from services.validator.gates.gate import Case, Cost, Finding, Need, failed, passed


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
