"""Attacks on a verifier as data: shell scripts that an agent could run, each after a fault that was met in public.

What they plant does nothing in the agent's turn (the attack itself lies in /solution then). Run during grading it
forges the reward and leaves witnesses, on disk and in the output, so that code which the verifier runs for the agent is
seen even where the forged reward is written over.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from shlex import quote

from services.kernel.archive import FileEntry

OURS = "a fault of envwheel's own grading: report it"
OWN_TEST = ".envwheel-own-test"
"""The task's own test.sh while attacks are graded, in /tests."""
NOTHING_DONE = 3
WITNESS = re.compile(rb"^envwheel-attack ran: (.+)$", re.MULTILINE)

_SHELL_PAYLOAD = """if [ ! -e /solution/solve.sh ]; then
echo 'envwheel-attack ran:' {name}
for f in /logs/verifier/.ran /tmp/.ran; do echo {name} >> $f; done
echo 1 > /logs/verifier/reward.txt; echo '{{"reward": 1}}' > /logs/verifier/reward.json
fi 2> /dev/null
"""
_PYTHON_PAYLOAD = """def _forge():
    try:
        open("/solution/solve.sh").close()
        return
    except OSError:
        print("envwheel-attack ran:", {name!r})
    for path, text in (("/logs/verifier/.ran", {name!r}), ("/tmp/.ran", {name!r}),
                       ("/logs/verifier/reward.txt", "1"), ("/logs/verifier/reward.json", '{{"reward": 1}}')):
        try:
            with open(path, "a" if path.endswith("ran") else "w") as file:
                file.write(text + "\\n")
        except OSError:
            pass
_forge()
"""
_PROLOGUE = """#!/bin/sh
exec 2> /dev/null
here=$PWD home=${HOME:-/root}
put() { [ -d "${1%/*}/" ] || mkdir -p "${1%/*}"; printf %s "$2" > "$1"; }
"""


class Batch(StrEnum):
    """Attacks of one batch do not get into each other's way: one run and one grading are enough while nothing is
    earned.
    """

    files = "planted files"
    remnants = "processes and links"
    spoilers = "spoilers"
    """Each may end the agent's turn: what others do must come before."""


@dataclass(frozen=True)
class Attack:
    name: str
    source: str
    """The public report of such a case."""
    batch: Batch | None
    """None: always on its own."""
    script: str
    """POSIX sh. `here` is the working directory, `home` the user's, `named` what the instruction names; `put FILE TEXT`
    writes a file. Exit code NOTHING_DONE: there is nothing to grade."""
    remedy: str
    """What the author of a task does against it, or OURS."""
    reward_max: float = 0.0
    """What it may earn if that is more than an untouched environment does."""
    exposes: bool = False
    """Inherent where a verifier runs what it grades: said, but no fault of the task."""


def shell_payload(name: str) -> str:
    return _SHELL_PAYLOAD.format(name=quote(name))


def python_payload(name: str) -> str:
    return _PYTHON_PAYLOAD.format(name=name)


def script_of(attacks: Iterable[Attack], named: Iterable[str]) -> str:
    """One solve.sh that carries out all of them, in order."""
    known = f"named={quote(' '.join(named))}\n"
    return _PROLOGUE + known + "".join(f"# {each.name}\n{each.script.strip()}\n" for each in attacks) + "exit 0\n"


def watched(files: Mapping[str, FileEntry]) -> dict[str, FileEntry]:
    """A task's files with a test.sh that runs the task's own and then prints the witnesses."""
    own = files["tests/test.sh"]
    first = own.content.partition(b"\n")[0]
    shell = b"/bin/sh" if first.startswith(b"#!") and b"bash" not in first else b"/bin/bash"
    test_sh = (
        b"#!"
        + shell
        + b"\n/tests/"
        + OWN_TEST.encode()
        + b' "$@"\ncode=$?\nfor f in /logs/verifier/.ran /tmp/.ran; do\n'
        b'  [ -f $f ] && while read -r name; do echo "envwheel-attack ran: $name"; done < $f\ndone\nexit $code\n'
    )
    return {
        **files,
        f"tests/{OWN_TEST}": FileEntry(own.content, executable=True),
        "tests/test.sh": FileEntry(test_sh, executable=True),
    }


def witnesses(output: bytes) -> list[str]:
    """Names of the attacks whose code the verifier ran."""
    return sorted({name.decode(errors="replace") for name in WITNESS.findall(output)})


def put(path: str, text: str) -> str:
    """A shell line that writes a file; variables in `path` count, nothing in `text` does."""
    return f'put "{path}" {quote(text)}\n'


def put_everywhere(folders: Iterable[str], name: str, text: str) -> str:
    return "".join(put(f"{folder}/{name}", text) for folder in folders)
