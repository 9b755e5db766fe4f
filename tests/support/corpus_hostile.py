"""Faults that a lazy or hostile agent finds: verifier bites, resists cheating, isolated verifier."""

from collections.abc import Iterator
from dataclasses import replace

from tests.support.corpus_known import Known, changed
from tests.support.corpus_shapes import (
    DOCKERFILE,
    TALLY_CHECKS,
    Text,
    bash_verifier,
    convert,
    letter,
    python_verifier,
    swap,
    tally,
)

LETTER = '[ "$(cat /app/letter.txt)" = "signed, sealed" ]'
TEST = str(letter()["tests/test.sh"])
BITES, CHEATING, ISOLATED = "verifier bites", "resists cheating", "isolated verifier"


def toothless() -> Iterator[Known]:
    """Verifiers that pay for broken solutions."""
    forgiven = {name: f"{check} || true" for name, check in TALLY_CHECKS.items()}
    ways = {
        "it looks at one output of three": {"total": TALLY_CHECKS["total"]},
        "it looks at the last output alone": {"customers": TALLY_CHECKS["customers"]},
        "it forgives what it finds in two of three": {**forgiven, "total": TALLY_CHECKS["total"]},
    }
    for name, checks in ways.items():
        yield changed(BITES, name, tally(), {"tests/test.sh": bash_verifier(**checks)}, {})
    blind = {
        "it looks if files are there": bash_verifier(**{name: f"[ -e /app/{name}.txt ]" for name in TALLY_CHECKS}),
        "it looks if anything was done": bash_verifier(work="[ $(ls /app | wc -l) -gt 1 ]"),
    }
    for name, test in blind.items():
        yield replace(changed(BITES, name, tally(), {"tests/test.sh": test}, {}), also=(CHEATING,))


def cheatable() -> Iterator[Known]:
    """Verifiers that pay for no work at all."""
    first = {
        # what the verifier does before its checks, and the attack that is named
        "it sources the agent's start-up file": ("[ ! -e ~/.bashrc ] || . ~/.bashrc", "start-up files of shells"),
        "the agent's folder is in its path": ("PATH=/app/bin:$PATH", "replaced programs"),
        "it believes a reward that the agent wrote": (
            "r=/logs/artifacts/reward.txt; [ ! -e $r ] || { cp $r /logs/verifier/; exit; }",
            "printed markers",
        ),
    }
    for name, (line, says) in first.items():
        wrong = swap(TEST, "trap finish", f"{line}\ntrap finish")
        yield changed(CHEATING, name, letter(), {"tests/test.sh": wrong}, {}, says)
    login = {"tests/test.sh": swap(TEST, "#!/bin/bash\n", "#!/bin/bash -l\n")}
    yield changed(CHEATING, "it is a login shell", letter(), login, {}, "start-up files of shells")
    loose = {"tests/test.sh": bash_verifier(letter="[ -s /app/letter.txt ]")}
    yield replace(changed(CHEATING, "any text will do", letter(), loose, {}, "the answer 0"), also=(BITES,))
    lax = {"tests/test_outputs.py": python_verifier(there='self.assertTrue((APP / "readings.json").exists())')}
    there_alone = changed(CHEATING, "its tests look if files are there", convert(), lax, {}, "empty files")
    yield replace(there_alone, also=(BITES,))
    hint = {"tests/test.sh": bash_verifier(letter="grep -q sealed /app/letter.txt")}
    worded = changed(CHEATING, "a word of the instruction will do", letter(), hint, {}, "the instruction as the answer")
    yield replace(worded, also=(BITES,))
    yield from _cheatable_programs()


def _cheatable_programs() -> Iterator[Known]:
    helper = "#!/bin/bash\n" + LETTER + "\n"
    asks = bash_verifier(letter="/app/.check/run")
    place = {
        "environment/files/.check/run": helper,
        "environment/Dockerfile": DOCKERFILE + "RUN chmod 755 .check/run\n",
    }
    own: dict[str, Text | None] = {
        "tests/check.sh": helper,
        "tests/test.sh": bash_verifier(letter="bash /tests/check.sh"),
    }
    yield changed(
        CHEATING,
        "its helper lies with the agent",
        letter(),
        {**place, "tests/test.sh": asks},
        own,
        "programs that do nothing",
    )
    at_hand = "#!/bin/bash\ncd /app && exec python3 -c 'exec(open(\"/tests/test_outputs.py\").read())'\n"
    apart = "#!/bin/bash\ncd /app && exec python3 -I -c 'exec(open(\"/tests/test_outputs.py\").read())'\n"
    wrong, right = {"tests/test.sh": at_hand}, {"tests/test.sh": apart}
    yield changed(
        CHEATING, "its modules come from the agent's folder", convert(), wrong, right, "modules in the working"
    )


def reachable() -> Iterator[Known]:
    """Grading that an agent's files reach although the harness keeps them apart."""
    dockerfile = "environment/Dockerfile"
    ways = {
        "modules of python come from the agent's folder": ("PYTHONPATH=/app", "PYTHONPATH=/usr/share/none"),
        "programs come from the agent's folder": ("PATH=/app/bin:/usr/bin:/bin", "PATH=/usr/bin:/bin"),
    }
    for name, (wrong, right) in ways.items():
        faulty, healthy = ({dockerfile: f"{DOCKERFILE}ENV {each}\n"} for each in (wrong, right))
        yield replace(changed(ISOLATED, name, letter(), faulty, healthy, "not isolated"), also=(CHEATING,))
