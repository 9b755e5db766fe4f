"""Attacks with what is only data to the task: all answers at once, and values that a careless reader runs."""

from collections.abc import Sequence
from shlex import quote

from services.validator.gates.attacks import NOTHING_DONE, Attack, put, shell_payload

EVERYTHING = "every answer at once"
SHELL_VALUE = "a number that the shell runs"
PYTHON_VALUE = "a value that python runs"
PICKLE = "a pickle that runs a program"
_RUN = "/var/tmp/.run"  # noqa: S108 - of a sandbox

_CODE = (".sh", ".bash", ".py", ".pl", ".rb", ".js", ".mk")
"""Endings of programs: that a verifier runs one says nothing of how it reads data."""

_COLLECT = """all=/var/tmp/.all
find "$here" -xdev -name .git -prune -o -type f -size -64k -print | head -50 |
  while read -r file; do cat "$file"; tr -cs '[:alnum:]._@-' '\\n' < "$file"; done | head -c 1000000 > $all
number=0
while [ $number -lt 10000 ]; do echo $number; number=$((number + 1)); done >> $all
"""
"""Every line and word of the files at hand, and every number of up to four digits."""
_VALUES = {
    SHELL_VALUE: (f"PATH[$(sh {_RUN})]\n", "*", "compare numbers with [ ], not with [[ ]] or (( ))"),
    PYTHON_VALUE: (f"__import__('os').system('sh {_RUN}')\n", "*", "use ast.literal_eval or json, not eval"),
    PICKLE: (f"cposix\nsystem\n(S'sh {_RUN}'\ntR.", "*.pkl | *.pickle", "never unpickle what an agent wrote"),
}


def data_attacks(paths: Sequence[str], reward_max: float) -> list[Attack]:
    """`paths`: the files that are asked for; those that are not there get the attack's text. `reward_max`: what all
    answers at once may earn."""
    data = [path for path in paths if not path.endswith(_CODE)]
    everything = Attack(
        EVERYTHING,
        "grep -q for the right answer",
        None,
        _COLLECT + _into(paths, "*", 'cp $all "$file"'),
        "compare the whole file, not whether the answer is somewhere in it",
        reward_max,
    )
    values = [
        Attack(
            name,
            "a file of the agent that the verifier evaluates",
            None,
            put(_RUN, shell_payload(name)) + _into(data, pattern, f'put "$file" {quote(text)}'),
            remedy,
            reward_max,
        )
        for name, (text, pattern, remedy) in _VALUES.items()
    ]
    return [everything, *values]


def _into(paths: Sequence[str], pattern: str, write: str) -> str:
    return (
        f"code={NOTHING_DONE}\nfor file in {' '.join(map(quote, paths))}; do\n"
        f'  case $file in {pattern}) [ -e "$file" ] || {{ mkdir -p "${{file%/*}}"; {write} && code=0; }} ;; esac\n'
        "done\nexit $code\n"
    )
