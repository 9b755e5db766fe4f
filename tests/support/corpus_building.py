"""Faults that building finds, and solutions and tests that an agent could read: builds, no leak."""

import base64
import gzip
from collections.abc import Iterator

from tests.support.corpus_known import Known, changed
from tests.support.corpus_shapes import DOCKERFILE, SOLVE, TALLY_STEPS, TOML, Text, but, convert, letter, swap, tally

BUILDS: dict[str, tuple[str, str, str]] = {
    # what: the wrong last lines of the Dockerfile, the right ones, what is said
    "a step that fails": ("RUN test -e missing\n", "RUN test -e notes.txt\n", "exit code 1"),
    "a program that is not there": ("RUN no-such-tool --version\n", "RUN bash --version\n", "exit code 127"),
    "a source that is not there": ("COPY gone.txt /app/\n", "COPY files/notes.txt /app/more.txt\n", "gone.txt"),
    "a download": ("RUN curl -fsS http://192.0.2.1/data > data\n", "RUN cat notes.txt > data\n", "exit code"),
    "a package from an index": (
        "RUN pip install --retries 0 --no-cache-dir --break-system-packages tabulate==0.9.0\n",
        "RUN python3 -c 'import json'\n",
        "exit code 1",
    ),
    "a user that is not there": ("USER nobody-here\nRUN true\n", "USER root\nRUN true\n", "nobody-here"),
    "an instruction that is not known": ("FETCH notes\n", "# FETCH notes\n", "FETCH"),
    "a quote that is not closed": ('COPY "files/notes.txt /app/\n', 'COPY "files/notes.txt" /app/\n', "quote"),
    "a work directory that is a file": ("WORKDIR /app/notes.txt\n", "WORKDIR /app\n", "notes.txt"),
    "more disk than there is": (
        "RUN head -c 200000000 /dev/zero > filler\n",
        "RUN head -c 2000 /dev/zero > filler\n",
        "disk_limit",
    ),
    "more memory than there is": (
        "RUN python3 -c 'x = bytearray(10 ** 9); x[::4096] = bytes(len(x[::4096]))'\n",
        "RUN python3 -c 'x = bytearray(10 ** 6); x[::4096] = bytes(len(x[::4096]))'\n",
        "RUN",
    ),
}


def unbuildable() -> Iterator[Known]:
    for name, (wrong, right, says) in BUILDS.items():
        faulty, healthy = ({"environment/Dockerfile": DOCKERFILE + lines} for lines in (wrong, right))
        yield changed("builds", name, letter(), faulty, healthy, says)
    dockerfile = "environment/Dockerfile"
    yield changed(
        "builds", "no first image", letter(), {dockerfile: "WORKDIR /app\n"}, {dockerfile: "FROM envwheel/base:1\n"}
    )
    yield changed("builds", "nothing in it", letter(), {dockerfile: "# later\n"}, {dockerfile: "# now\n" + DOCKERFILE})
    toml = swap(TOML, "build_timeout_sec = 20.0", "build_timeout_sec = 0.3")
    busy = {dockerfile: DOCKERFILE + "RUN while :; do :; done\n", "task.toml": toml}
    yield changed("builds", "a step without end", letter(), busy, {dockerfile: DOCKERFILE + "RUN :\n"}, "cpu_limit")


SOLUTION = str(tally()["solution/solve.sh"])
VERIFIER = str(tally()["tests/test.sh"])
PYTHON_TESTS = str(convert()["tests/test_outputs.py"])
EXPECTED = "".join(f"{1000 + 37 * number},{'ada' if number % 3 else 'ines'}\n" for number in range(40))
COMMIT = (
    "RUN git init -q repo && cd repo && git config user.name A && git config user.email a@localhost"
    " && cp ../{name} kept && git add kept && git commit -q -m one && git rm -q kept && git commit -q -m two && cd .."
    " && rm {name}\n"
)


def leaky() -> Iterator[Known]:
    yield from _in_the_image()
    yield from _in_its_history()
    yield from _in_the_words()


def _copied(content: Text, lines: str = "", name: str = "notes.bak") -> dict[str, Text | None]:
    return {f"environment/files/{name}": content, "environment/Dockerfile": DOCKERFILE + lines}


def _in_the_image() -> Iterator[Known]:
    other = SOLVE + "ls\n"
    ways: dict[str, tuple[dict[str, Text | None], dict[str, Text | None]]] = {
        "the solution under another name": (_copied(SOLUTION), _copied(other)),
        "the solution among other lines": (_copied(f"# notes\n{ORDERED}\n# more\n"), _copied("# notes\n# more\n")),
        "the solution in base64": (
            _copied(base64.encodebytes(SOLUTION.encode())),
            _copied(base64.encodebytes(other.encode())),
        ),
        "the solution in a compressed file": (
            _copied(gzip.compress(SOLUTION.encode(), mtime=0)),
            _copied(gzip.compress(other.encode(), mtime=0)),
        ),
        "the verifier": (_copied(VERIFIER, name="check.txt"), _copied("#!/bin/bash\n", name="check.txt")),
        "the solution made by a step": (
            _copied("".join(f"{line}\n" for line in reversed(SOLUTION.split("\n"))), "RUN tac notes.bak > .cache\n"),
            _copied("b\na\n", "RUN tac notes.bak > .cache\n"),
        ),
    }
    for name, (wrong, right) in ways.items():
        yield changed("no leak", name, tally(), wrong, right)
    tests = {"environment/files/tests/test_outputs.py": PYTHON_TESTS}
    other_tests = {"environment/files/tests/test_outputs.py": "import unittest\n"}
    yield changed("no leak", "the tests", convert(), tests, other_tests)
    wanted = but(tally(), {"tests/expected.csv": EXPECTED})
    yield changed("no leak", "a file of expected results", wanted, _copied(EXPECTED), _copied(EXPECTED[:60]))


ORDERED = "\n".join(TALLY_STEPS)


def _in_its_history() -> Iterator[Known]:
    git = COMMIT.format(name="notes.bak")
    yield changed("no leak", "the solution in a git object", tally(), _copied(SOLUTION, git), _copied("a\n", git))
    cache = "RUN mkdir -p /root/.cache/pip/http && mv notes.bak /root/.cache/pip/http/0a1b\n"
    yield changed("no leak", "the solution in a cache", tally(), _copied(SOLUTION, cache), _copied("a\n", cache))


def _in_the_words() -> Iterator[Known]:
    asked = str(tally()["instruction.md"])
    told = {"instruction.md": f"{asked}\nThese commands do it:\n\n{ORDERED}\n"}
    hinted = {"instruction.md": f"{asked}\nAwk, cut and sort will do.\n"}
    yield changed("no leak", "the solution in the instruction", tally(), told, hinted)
