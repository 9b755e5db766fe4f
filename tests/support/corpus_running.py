"""Faults that running finds: oracle passes, no-op fails, not flaky."""

import time
from collections.abc import Iterator
from dataclasses import replace

from tests.support.corpus_known import Known, changed
from tests.support.corpus_shapes import (
    SOLVE,
    TALLY_STEPS,
    TOML,
    Text,
    apart,
    bash_verifier,
    letter,
    stock,
    swap,
    tally,
)

WRITE = "echo 'signed, sealed' > letter.txt\n"
LETTER = '[ "$(cat /app/letter.txt)" = "signed, sealed" ]'
TEST = str(letter()["tests/test.sh"])
QUICK = swap(TOML, "timeout_sec = 20.0\n[verifier]", "timeout_sec = 0.3\n[verifier]")
Changes = dict[str, Text | None]


def unsolved() -> Iterator[Known]:
    solutions = {
        # what: wrong, right, what is said
        "a step is missing": ("\n".join(TALLY_STEPS[:2]) + "\n", "\n".join(TALLY_STEPS) + "\n", "customers"),
        "it stops half-way": (
            f"{TALLY_STEPS[0]}\nfalse\n{TALLY_STEPS[1]}\n{TALLY_STEPS[2]}\n",
            f"{TALLY_STEPS[0]}\ntrue\n{TALLY_STEPS[1]}\n{TALLY_STEPS[2]}\n",
            "earns 0",
        ),
        "it fails after its work is done": (
            "\n".join(TALLY_STEPS) + "\nls missing.txt\n",
            "\n".join(TALLY_STEPS) + "\nls total.txt\n",
            "exit code 2",
        ),
        "it names another path": (
            "mkdir -p out && cd out\n" + "\n".join(TALLY_STEPS).replace("orders", "../orders") + "\n",
            "\n".join(TALLY_STEPS).replace("orders", "./orders") + "\n",
            "earns 0",
        ),
    }
    for name, (wrong, right, says) in solutions.items():
        faulty, healthy = ({"solution/solve.sh": SOLVE + lines} for lines in (wrong, right))
        yield changed("oracle passes", name, tally(), faulty, healthy, says)
    elsewhere = swap(str(apart()["task.toml"]), "/app/out", "/app/elsewhere")
    yield changed("oracle passes", "its output is not declared", apart(), {"task.toml": elsewhere}, {}, "words")
    for name, wrong_files, right_files, says in _unsolved_letters():
        yield changed("oracle passes", name, letter(), wrong_files, right_files, says)
    for name, wrong_test, says in (
        ("no verdict is written", "#!/bin/bash\nexit 0\n", "no reward file"),
        ("the verifier breaks down", swap(TEST, "#!/bin/bash\n", "#!/bin/bash\nset -e\nls /logs/none\n"), "no reward"),
        ("the verifier is no program", swap(TEST, "#!/bin/bash\n", "#!/bin/no-shell\n"), "no reward file"),
        ("the verifier is no bash", swap(TEST, "set -u\n", "if then\n"), "no reward file"),
    ):
        known = changed("oracle passes", name, letter(), {"tests/test.sh": wrong_test}, {}, says)
        yield replace(known, also=("no-op fails",))


def _unsolved_letters() -> Iterator[tuple[str, Changes, Changes, str]]:
    solve, test = "solution/solve.sh", "tests/test.sh"
    busy: Changes = {solve: SOLVE + WRITE + "while :; do :; done\n", "task.toml": QUICK}
    yield "it never ends", busy, {solve: SOLVE + WRITE + "while false; do :; done\n"}, "cpu_limit"
    idle: Changes = {solve: SOLVE + WRITE + "sleep 1000\n", "task.toml": swap(QUICK, "0.3", "0.1")}
    yield "it waits for ever", idle, {solve: SOLVE + WRITE + "sleep 0.1\n"}, "wall_limit"
    filling = "head -c {} /dev/zero > /tmp/filler && sync /tmp/filler\n" + WRITE
    yield (
        "it fills the disk",
        {solve: SOLVE + filling.format(200_000_000)},
        {solve: SOLVE + filling.format(2000)},
        "disk_limit",
    )
    hungry = "python3 -c 'x = bytearray({}); x[::4096] = bytes(len(x[::4096]))'\n" + WRITE
    yield "it eats the memory", {solve: SOLVE + hungry.format(10**9)}, {solve: SOLVE + hungry.format(10**6)}, ""
    fetch = "curl -fsS http://192.0.2.1/letter > letter.txt\n"
    yield "it downloads", {solve: SOLVE + fetch}, {solve: SOLVE + WRITE + "curl --version\n"}, "earns 0"
    yield "its shell is not there", {solve: "#!/bin/no-shell\n" + WRITE}, {solve: "#!/bin/sh\n" + WRITE}, "earns 0"
    served = bash_verifier(letter=LETTER, served="exec 3<>/dev/tcp/127.0.0.1/8123")
    serve = WRITE + "python3 -m http.server 8123 > /dev/null 2>&1 &\n"
    yield "its service is gone when graded", {solve: SOLVE + serve, test: served}, {solve: SOLVE + serve}, "served"
    reward = "#!/bin/bash\n" + f"{LETTER} && r=%s || r=0\necho $r > /logs/verifier/reward.txt\n"
    for said in ("nan", "1.5", "true", "1_0"):
        yield f"the reward is {said}", {test: reward % said}, {test: reward % "1.0"}, ""
    user = swap(TOML, "20.0\n[verifier]", '20.0\nuser = "nobody-here"\n[verifier]')
    yield (
        "its user is not there",
        {"task.toml": user},
        {"task.toml": user.replace("nobody-here", "root")},
        "nobody-here",
    )


def unearned() -> Iterator[Known]:
    """What pays an agent that does nothing, or cannot grade one."""
    note, test = "environment/files/notes.txt", "tests/test.sh"
    done = {"environment/files/letter.txt": "signed, sealed\n"}
    yield changed("no-op fails", "all is done", letter(), done, {"environment/files/letter.txt": "signed\n"}, "earns 1")
    lax = bash_verifier(letter=f"[ ! -e /app/letter.txt ] || {LETTER}")
    yield changed("no-op fails", "what is missing is fine", letter(), {test: lax}, {}, "earns 1")
    half = {test: _shares(LETTER, f"[ -e /app/{note.rpartition('/')[2]} ]")}
    honest = {test: _shares(LETTER, "[ -s /app/letter.txt ]")}
    yield changed("no-op fails", "half of it is done", letter(), half, honest, "earns 0.5")
    crash = {test: swap(TEST, "trap finish", "wc -c < /app/letter.txt || exit 3\ntrap finish")}
    yield changed("no-op fails", "the verifier breaks down", letter(), crash, {}, "no reward")
    runner = "PATH=/app/.bin:$PATH pytest -q /tests || exit 0\n"
    tool = {"solution/solve.sh": SOLVE + WRITE + "install -D -m 755 /bin/true .bin/pytest\n"}
    missing = {**tool, test: swap(TEST, "check letter\n", runner + "check letter\n")}
    yield changed("no-op fails", "the verifier's tool is missing", letter(), missing, {}, "not found")
    fixed = str(stock()["tests/test_outputs.py"])
    early = swap(fixed, "\n\n\ndef test_low", '\nLOW = (APP / "low.txt").read_text().split()\n\n\ndef test_low')
    late = swap(fixed, "def test_low():\n", 'def test_low():\n    assert (APP / "low.txt").exists()\n')
    collected = changed(
        "no-op fails",
        "the tests do not load",
        stock(),
        {"tests/test_outputs.py": early},
        {"tests/test_outputs.py": late},
    )
    yield replace(collected, says="does not load")
    skipped = (
        'import pytest\n\npytestmark = pytest.mark.skipif(not pathlib.Path("/app/low.txt").exists(), reason="later")\n'
    )
    none = {"tests/test_outputs.py": swap(fixed, "import pathlib\n", f"import pathlib\n\n{skipped}")}
    told = "test_outputs.py | tee /tmp/out\ngrep -Eq '^=+ [0-9]+ passed in' /tmp/out\n"
    exits = swap(str(stock()["tests/test.sh"]), "test_outputs.py\n", told)
    yield changed(
        "no-op fails", "every test is skipped", stock(), {**none, test: exits}, {test: exits}, "no test was run"
    )
    always = swap(bash_verifier(letter=LETTER), "status=failed; failures", "failures")
    yield changed("no-op fails", "no test fails", letter(), {test: always}, {}, "no test fails")


def _shares(first: str, second: str) -> str:
    """A verifier that pays half for each of two checks."""
    text = bash_verifier(first=first, second=second)
    return swap(
        text,
        "if [ $failures = 0 ]; then reward=1; fi",
        'reward=$(printf "0.%d" $((10 - 5 * failures)))\n[ $failures = 0 ] && reward=1\n[ $failures = 2 ] && reward=0',
    )


def flaky() -> Iterator[Known]:
    soon = int(time.time()) + 200 * 86_400
    around = {
        # what: wrong, right, what a machine needs for it
        "the host's name": ('[ "$(hostname)" = envwheel ]', '[ -n "$(hostname)" ]', ""),
        "the time zone": ('[ "$(date +%Z)" = UTC ]', '[ "$(date -u +%Z)" = UTC ]', ""),
        "the local hour": ('[ "$(date -d @0 +%H)" = 00 ]', '[ "$(date -u -d @0 +%H)" = 00 ]', ""),
        "what a letter is": ("[ $(printf '\\303\\244' | wc -m) = 1 ]", "[ $(printf '\\303\\244' | wc -c) = 2 ]", ""),
        "the year": (f'[ "$(date +%s)" -lt {soon} ]', f'[ "$(date +%s)" -lt {soon * 10} ]', "clock"),
    }
    for name, (wrong, right, needs) in around.items():
        faulty, healthy = ({"tests/test.sh": bash_verifier(letter=LETTER, around=each)} for each in (wrong, right))
        yield replace(changed("not flaky", name, letter(), faulty, healthy, "around"), needs=needs)
    solved = '[ "$(hostname)" = {} ] || exit 0\n' + WRITE
    faulty, healthy = ({"solution/solve.sh": SOLVE + solved.format(each)} for each in ("envwheel", '"$(uname -n)"'))
    yield changed("not flaky", "a solution for one host", letter(), faulty, healthy, "letter")
    yield from _flaky_by_chance()
    ordered = str(stock()["tests/test_outputs.py"]) + "\n\n{}def test_after():\n    assert APP.name == state['name']\n"
    leaning = "state = {}\n\n\ndef test_before():\n    state['name'] = APP.name\n\n\n"
    faulty, healthy = (
        {"tests/test_outputs.py": ordered.format(each)} for each in (leaning, "state = {'name': 'app'}\n\n\n")
    )
    yield changed("not flaky", "the order of tests", stock(), faulty, healthy, "test_after")


def _flaky_by_chance() -> Iterator[Known]:
    """Never equal in two runs: a fault that shows itself now and then has no known answer."""
    test = str(letter()["tests/test.sh"])
    named = {"tests/test.sh": swap(test, 'name\\":\\"$1\\"', 'name\\":\\"$1-$RANDOM-$RANDOM\\"')}
    plain = {"tests/test.sh": swap(test, 'name\\":\\"$1\\"', 'name\\":\\"$1-1-2\\"')}
    yield changed("not flaky", "names drawn by chance", letter(), named, plain, "letter-")
    coins = {
        f"coin_{number}": "[ $((0x$(head -c 1 /dev/urandom | od -An -tx1 | tr -d ' ') % 2)) = 0 ]"
        for number in range(32)
    }
    chance = {"tests/test.sh": swap(bash_verifier(letter=LETTER, **coins), "[ $failures = 0 ]", LETTER)}
    sure = {
        "tests/test.sh": swap(bash_verifier(letter=LETTER, **dict.fromkeys(coins, "true")), "[ $failures = 0 ]", LETTER)
    }
    yield changed("not flaky", "results drawn by chance", letter(), chance, sure, "coin_")
