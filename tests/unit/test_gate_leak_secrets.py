"""What gives a secret away, and what honest tasks have in common with their own tests and solutions."""

from hashlib import sha256

import pytest

from services.kernel.archive import FileEntry
from services.validator.gates.leak_secrets import View, secrets_of
from tests.support.corpus_shapes import SHAPES, files_of, mend, stock, tally

SOLVE = """#!/bin/bash
set -euo pipefail
cd /app
sort -t, -k2 ledger.csv > sorted.csv
cut -d, -f1 sorted.csv | uniq -c > counts.txt
head -n 1 counts.txt > first.txt
python3 - <<'PY'
import json
rows = [line.split(",") for line in open("sorted.csv")]
total = sum(int(row[2]) for row in rows)
json.dump({"total": total}, open("total.json", "w"))
PY
cat > report.conf <<EOF
[report]
title = Quarterly ledger
format = plain
EOF
"""
TESTS = """import json
from pathlib import Path

def test_total_is_right():
    assert json.loads(Path("/app/total.json").read_text()) == {"total": 4711}

def test_counts_are_in_order():
    lines = Path("/app/counts.txt").read_text().splitlines()
    assert lines == sorted(lines)
"""
EXPECTED = "ada,1200\nines,3000\nomar,700\n"
COMMANDS = "\n".join(SOLVE.split("\n")[3:6])
PROGRAM = "\n".join(SOLVE.split("\n")[7:11])
CONF = "\n".join(SOLVE.split("\n")[13:16])


def given_away(content: str | bytes, place: str = "/app/notes.txt") -> set[str]:
    """Names of the secrets that are seen in a file at `place`."""
    texts = {
        "solution/solve.sh": SOLVE,
        "tests/test.sh": "#!/bin/bash\npytest /tests/test_ledger.py\n",
        "tests/test_ledger.py": TESTS,
        "tests/expected.csv": EXPECTED,
    }
    secrets = secrets_of(files_of(texts))
    view = View(content.encode() if isinstance(content, str) else content)
    scripts = {script.name for script in secrets.scripts if script.found_in(view, place)}
    return scripts | {block.name for block in secrets.blocks if block.found_in(view)}


DOCUMENT = "solution/solve.sh (here-document)"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (SOLVE, {"solution/solve.sh", DOCUMENT}),
        (SOLVE.replace("    ", "\t").replace("\n", "  \r\n"), {"solution/solve.sh", DOCUMENT}),
        (f"Notes on the ledger.\n{COMMANDS}\nThat is all.\n", {"solution/solve.sh"}),
        ("\n".join(reversed(COMMANDS.split("\n"))), {"solution/solve.sh"}),
        ("\n".join(COMMANDS.split("\n")[:2]), set()),
        (f"# how it was done\n{PROGRAM}\n", {DOCUMENT}),
        (PROGRAM.replace("total = sum", "amount = sum"), set()),
        (CONF, {DOCUMENT}),
        (f"{CONF}\nmargin = 2\n", set()),
        (EXPECTED, {"tests/expected.csv"}),
        (EXPECTED.replace("\n", "\r\n"), {"tests/expected.csv"}),
        (EXPECTED + "zoe,1\n", set()),
        (TESTS, {"tests/test_ledger.py"}),
        (TESTS.replace("4711", "0"), {"tests/test_ledger.py"}),
        (b"\x89SQL\0\0" + b"\0".join(COMMANDS.encode().split(b"\n")) + b"\0", {"solution/solve.sh"}),
        (f"{sha256(SOLVE.encode()).hexdigest()}  kept\n", {"solution/solve.sh"}),
        (f"{sha256(EXPECTED.encode()).hexdigest()}  kept\n", set()),
    ],
    ids=range(17),
)
def test_a_text_gives_away(content: str | bytes, found: set[str]) -> None:
    assert given_away(content) == found


def test_another_version_of_a_projects_own_test_file_is_no_leak_and_the_same_version_is() -> None:
    older = TESTS.replace("4711", "4710")
    assert given_away(older, "/app/tests/test_ledger.py") == set()
    assert given_away(older, "/app/old.py") == {"tests/test_ledger.py"}
    assert given_away(TESTS, "/app/tests/test_ledger.py") == {"tests/test_ledger.py"}


def test_a_broken_script_is_not_the_mended_one() -> None:
    secrets = secrets_of(files_of(mend()))
    broken, mended = mend()["environment/files/slug.py"], "\n".join(str(mend()["solution/solve.sh"]).split("\n")[4:-2])
    for text, leaks in ((broken, False), (mended, True)):
        view = View(str(text).encode())
        assert any(block.found_in(view) for block in secrets.blocks) is leaks
        assert not any(script.found_in(view, "/app/slug.py") for script in secrets.scripts)


def test_one_short_command_counts_where_there_is_little_else() -> None:
    texts = {"solution/solve.sh": "#!/bin/bash\ncd /app\nsort -n hazel.lst > tomato.md\n"}
    (script,) = secrets_of(files_of(texts)).scripts
    makefile = (
        "all: tomato\ntomato:\n\tsort -n hazel.lst > tomato.md\n\tcp tomato.md /srv/tomato.md\n\tgzip -k tomato.md\n"
    )
    assert script.found_in(View(b"sort -n hazel.lst > tomato.md\n"), "/root/.bash_history") is not None
    assert script.found_in(View(makefile.encode()), "/app/Makefile") is None


def test_libraries_that_tests_bring_along_are_no_secrets() -> None:
    names = [script.name for script in secrets_of(files_of(stock())).scripts]
    assert names == ["solution/solve.sh", "tests/test.sh", "tests/test_outputs.py"]


def test_the_wording_of_every_test_script_marks_none() -> None:
    harness = """#!/bin/bash
apt-get update
apt-get install -y curl
curl -LsSf https://astral.sh/uv/0.7.13/install.sh | sh
source $HOME/.local/bin/env
uvx -p 3.13 -w pytest==8.4.1 pytest /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
    (script,) = secrets_of({"tests/test.sh": FileEntry(harness.encode())}).scripts
    assert len(script.own) == 1
    setup = harness.replace("uvx -p 3.13 -w pytest==8.4.1 pytest /tests/test_outputs.py -rA", "make -C /app install")
    assert script.found_in(View(setup.encode()), "/app/setup.sh") is None


@pytest.mark.parametrize("shape", SHAPES)
def test_no_file_of_a_healthy_environment_gives_its_own_secrets_away(shape: object) -> None:
    files = files_of(shape())  # type: ignore[operator] # one of SHAPES
    secrets = secrets_of(files)
    for name, entry in files.items():
        if name.startswith(("environment/", "instruction.md", "task.toml")):
            view = View(entry.content)
            assert not any(script.found_in(view, name) for script in secrets.scripts)
            assert not any(block.found_in(view) for block in secrets.blocks)


def test_another_task_of_the_same_author_gives_nothing_away() -> None:
    secrets = secrets_of(files_of(tally()))
    view = View(str(mend()["tests/test.sh"]).encode())
    assert [script.name for script in secrets.scripts if script.found_in(view, "/app/other.sh")] == []
