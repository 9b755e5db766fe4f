"""Healthy Harbor tasks in several shapes: a letter, reports, data to convert, a script to mend, a git history, and
one that is graded apart.

Each is one that every gate must let through; the corpus of faults changes one thing in one of them.
"""

from collections.abc import Mapping

from services.kernel.archive import FileEntry
from tests.support.pytest_verifier import pytest_archive

Text = str | bytes
Texts = Mapping[str, Text]
"""Files of a task by path."""

DOCKERFILE = "FROM envwheel/base:1\nWORKDIR /app\nCOPY files/ /app/\n"
SOLVE = "#!/bin/bash\nset -euo pipefail\ncd /app\n"
TOML = """schema_version = "1.4"
[task]
name = "corpus/task"
[agent]
timeout_sec = 20.0
[verifier]
timeout_sec = 10.0
environment_mode = "shared"
[environment]
build_timeout_sec = 20.0
cpus = 1
memory_mb = 256
storage_mb = 64
network_mode = "no-network"
workdir = "/app"
"""
SEPARATE_TOML = 'artifacts = ["/app/out"]\n' + TOML.replace('"shared"', '"separate"')
_VERIFIER = """#!/bin/bash
# One line a check; the reward is 1 if all of them hold, and is written whatever happens.
set -u
entries=() failures=0 reward=0
finish() {
  local IFS=,
  printf '{"results":{"tool":{"name":"corpus"},"summary":{},"tests":[%s]}}' "${entries[*]}" > /logs/verifier/ctrf.json
  echo "$reward" > /logs/verifier/reward.txt
}
trap finish EXIT
check() {
  local status=passed
  if ! "$1" > /dev/null 2>&1 < /dev/null; then status=failed; failures=$((failures + 1)); fi
  entries+=("{\\"name\\":\\"$1\\",\\"status\\":\\"$status\\",\\"duration\\":0}")
  echo "$status $1"
}
"""
_PYTHON_VERIFIER = """import json
import pathlib
import unittest

APP = pathlib.Path("/app")
LOGS = pathlib.Path("/logs/verifier")


class Outputs(unittest.TestCase):
{tests}

class Report(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.tests = []

    def stopTest(self, test):
        broken = [failed for failed, _ in self.failures + self.errors]
        status = "failed" if test in broken else "passed"
        self.tests.append({{"name": test.id().rpartition(".")[2], "status": status, "duration": 0}})
        print(status, test.id())


report = Report()
unittest.defaultTestLoader.loadTestsFromTestCase(Outputs).run(report)
results = {{"tool": {{"name": "corpus"}}, "summary": {{}}, "tests": report.tests}}
(LOGS / "ctrf.json").write_text(json.dumps({{"results": results}}))
(LOGS / "reward.txt").write_text(str(int(report.wasSuccessful() and report.testsRun > 0)))
"""
RUN_PYTHON = "#!/bin/bash\ncd /tests && exec python3 -I test_outputs.py\n"


def swap(text: str, old: str, new: str) -> str:
    """Replaces what must be there: a fault that changes nothing would be its own twin."""
    assert old in text, f"{old!r} is not in {text!r}"
    return text.replace(old, new)


def files_of(texts: Texts) -> dict[str, FileEntry]:
    return {
        name: FileEntry(text.encode() if isinstance(text, str) else text, name.endswith(".sh"))
        for name, text in texts.items()
    }


def but(texts: Texts, changes: Mapping[str, Text | None]) -> dict[str, Text]:
    """The same task with files added, replaced or (None) left out."""
    changed = {**texts, **changes}
    return {name: text for name, text in changed.items() if text is not None}


def bash_verifier(**checks: str) -> str:
    """A test.sh with one bash function a check."""
    functions = "".join(f"{name}() {{\n  {body}\n}}\n" for name, body in checks.items())
    calls = "".join(f"check {name}\n" for name in checks)
    return f"{_VERIFIER}{functions}{calls}if [ $failures = 0 ]; then reward=1; fi\n"


def python_verifier(**tests: str) -> str:
    """A test_outputs.py with one unittest method a test; needs the standard library alone."""
    methods = ""
    for name, body in tests.items():
        lines = "".join(f"        {line}\n" for line in body.splitlines())
        methods += f"    def test_{name}(self):\n{lines}\n"
    return _PYTHON_VERIFIER.format(tests=methods)


def letter() -> dict[str, Text]:
    """One short file, written as asked: the smallest task that there is."""
    return {
        "task.toml": TOML,
        "instruction.md": "Write the two words `signed, sealed` and nothing else into the file /app/letter.txt.\n",
        "environment/Dockerfile": DOCKERFILE,
        "environment/files/notes.txt": "kilo\nlima\n",
        "solution/solve.sh": SOLVE + "echo 'signed, sealed' > letter.txt\n",
        "tests/test.sh": bash_verifier(letter='[ "$(cat /app/letter.txt)" = "signed, sealed" ]'),
    }


ORDERS = """id,customer,cents
1,ines,1250
2,omar,300
3,ines,475
4,ada,2210
5,omar,90
6,ada,15
"""
TALLY_STEPS = (
    "awk -F, 'NR > 1 {sum += $3} END {print sum}' orders.csv > total.txt",
    "awk -F, 'NR > 1 {sum[$2] += $3} END {for (name in sum) print sum[name], name}' orders.csv"
    " | sort -rn | sed -n '1s/.* //p' > top.txt",
    "tail -n +2 orders.csv | cut -d, -f2 | LC_ALL=C sort -u > customers.txt",
)
TALLY_CHECKS = {
    "total": '[ "$(cat /app/total.txt)" = 4340 ]',
    "top": '[ "$(cat /app/top.txt)" = ada ]',
    "customers": "cmp /app/customers.txt <(printf 'ada\\nines\\nomar\\n')",
}


def tally() -> dict[str, Text]:
    """Three reports from one table; a bash verifier with three checks."""
    return {
        "task.toml": TOML,
        "instruction.md": """Each line of /app/orders.csv is an order with its price in cents. Write three reports:

- /app/total.txt: the sum of all prices, as one number;
- /app/top.txt: the name of the customer who spent most;
- /app/customers.txt: every customer's name once, sorted by bytes, one a line.
""",
        "environment/Dockerfile": DOCKERFILE,
        "environment/files/orders.csv": ORDERS,
        "solution/solve.sh": SOLVE + "\n".join(TALLY_STEPS) + "\n",
        "tests/test.sh": bash_verifier(**TALLY_CHECKS),
    }


READINGS = """time,station,fahrenheit
2026-03-02T06:00,pier,50
2026-03-01T18:00,mast,41
2026-03-01T06:00,pier,32
"""
CONVERT = """python3 - <<'PY'
import csv
import json

rows = sorted(csv.DictReader(open("readings.csv")), key=lambda row: row["time"])
for row in rows:
    row["celsius"] = (int(row.pop("fahrenheit")) - 32) * 5 / 9
json.dump(rows, open("readings.json", "w"))
PY
"""
CONVERT_TESTS = {
    "times": 'rows = json.loads((APP / "readings.json").read_text())\n'
    'self.assertEqual([row["time"][8:13] for row in rows], ["01T06", "01T18", "02T06"])',
    "stations": 'rows = json.loads((APP / "readings.json").read_text())\n'
    'self.assertEqual([row["station"] for row in rows], ["pier", "mast", "pier"])',
    "celsius": 'rows = json.loads((APP / "readings.json").read_text())\n'
    'for row, wanted in zip(rows, (0, 5, 10), strict=True):\n    self.assertAlmostEqual(row["celsius"], wanted, 3)',
}


def convert() -> dict[str, Text]:
    """A table into JSON; a verifier in Python that counts its tests."""
    return {
        "task.toml": TOML,
        "instruction.md": "Turn /app/readings.csv into /app/readings.json: a list of objects with the keys time, "
        "station and celsius (a number, converted from Fahrenheit), in order of time.\n",
        "environment/Dockerfile": DOCKERFILE,
        "environment/files/readings.csv": READINGS,
        "solution/solve.sh": SOLVE + CONVERT,
        "tests/test.sh": RUN_PYTHON,
        "tests/test_outputs.py": python_verifier(**CONVERT_TESTS),
    }


BROKEN_SLUG = """import sys

title = " ".join(sys.argv[1:])
print("-".join(title.split(" ")))
"""
MEND = """cat > slug.py <<'PY'
import re
import sys

title = " ".join(sys.argv[1:]).lower()
print("-".join(re.findall("[a-z0-9]+", title)))
PY
"""
MEND_CHECKS = {
    "lowers": '[ "$(python3 -I /app/slug.py Quiet HARBOUR)" = quiet-harbour ]',
    "joins_once": '[ "$(python3 -I /app/slug.py "a  --  b")" = a-b ]',
    "keeps_digits": '[ "$(python3 -I /app/slug.py Pier 39!)" = pier-39 ]',
}


def mend() -> dict[str, Text]:
    """A script with two faults; the verifier runs what the agent left."""
    return {
        "task.toml": TOML,
        "instruction.md": "The script /app/slug.py prints its arguments as one slug, and does it badly. Mend it: all "
        "letters lower case, and every run of characters but a-z and 0-9 becomes one hyphen, none at either end.\n",
        "environment/Dockerfile": DOCKERFILE,
        "environment/files/slug.py": BROKEN_SLUG,
        "solution/solve.sh": SOLVE + MEND,
        "tests/test.sh": bash_verifier(**MEND_CHECKS),
    }


HISTORY = (
    "RUN git init -q -b main ledger && cd ledger && git config user.name Clerk && git config user.email clerk@localhost"
    ' && for n in 1 2 3 4; do echo "entry $n" >> ledger.txt && git add . && GIT_AUTHOR_DATE="2026-01-0$n 12:00 +0000"'
    ' GIT_COMMITTER_DATE="2026-01-0$n 12:00 +0000" git commit -q -m "Entry $n"; done\n'
)
AUDIT = """cd ledger
git tag audited "$(git log --format=%H --grep='Entry 2')"
git branch hold "$(git rev-list --max-parents=0 main)"
git rev-list --count main > ../count.txt
"""
_GIT = "git -c core.fsmonitor=false -c core.hooksPath=/dev/null -c safe.directory=* -C /app/ledger"
AUDIT_CHECKS = {
    "tag": f'[ "$({_GIT} log -1 --format=%s audited)" = "Entry 2" ]',
    "branch": f'[ "$({_GIT} log -1 --format=%s hold)" = "Entry 1" ]',
    "count": '[ "$(cat /app/count.txt)" = 4 ]',
}


def audit() -> dict[str, Text]:
    """A git repository that the image's build makes."""
    return {
        "task.toml": TOML,
        "instruction.md": "In the repository /app/ledger give the commit `Entry 2` the tag `audited`, make a branch "
        "`hold` at the very first commit, and write the number of commits on main into /app/count.txt.\n",
        "environment/Dockerfile": "FROM envwheel/base:1\nWORKDIR /app\n" + HISTORY,
        "solution/solve.sh": SOLVE + AUDIT,
        "tests/test.sh": bash_verifier(**AUDIT_CHECKS),
    }


RUN_PYTEST = """#!/bin/bash
alone="-p no:cacheprovider -c /dev/null --rootdir=/tests --confcutdir=/tests"
cd /tests && PYTHONPATH=/tests/pytest.zip python3 -s -m pytest $alone -rA test_outputs.py
if [ $? = 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
STOCK_TESTS = """import pathlib

APP = pathlib.Path("/app")


def test_low():
    assert (APP / "low.txt").read_text().split() == ["bolts", "rope"]


def test_units():
    assert (APP / "units.txt").read_text().strip() == "104"
"""


def stock() -> dict[str, Text]:
    """A verifier of pytest that leaves no report but what pytest prints."""
    return {
        "task.toml": TOML,
        "instruction.md": "The file /app/stock.txt has one article with its number a line. Write the names of "
        "those with fewer than ten into /app/low.txt, sorted, and the sum of all numbers into /app/units.txt.\n",
        "environment/Dockerfile": DOCKERFILE,
        "environment/files/stock.txt": "tar 61\nrope 4\nnails 30\nbolts 9\n",
        "solution/solve.sh": SOLVE
        + "awk '$2 < 10 {print $1}' stock.txt | sort > low.txt\n"
        + "awk '{sum += $2} END {print sum}' stock.txt > units.txt\n",
        "tests/test.sh": RUN_PYTEST,
        "tests/test_outputs.py": STOCK_TESTS,
        "tests/pytest.zip": pytest_archive(),
    }


def apart() -> dict[str, Text]:
    """Graded in a sandbox of its own that gets the declared folder /app/out and nothing else of the agent's."""
    return {
        "task.toml": SEPARATE_TOML,
        "instruction.md": "Make the folder /app/out, and in it the file words.txt that holds the words of "
        "/app/notes.txt in reverse order, one a line.\n",
        "environment/Dockerfile": DOCKERFILE,
        "environment/files/notes.txt": "kilo\nlima\nmike\n",
        "solution/solve.sh": SOLVE + "mkdir -p out\ntac notes.txt > out/words.txt\n",
        "tests/test.sh": bash_verifier(words="cmp /app/out/words.txt <(printf 'mike\\nlima\\nkilo\\n')"),
    }


SHAPES = (letter, tally, convert, mend, audit, stock, apart)
