"""Mutants of solutions: cut by a real bash, each with one thing wrong, chosen alike for alike environments."""

import subprocess
from pathlib import Path
from random import Random

import pytest

from services.kernel.archive import FileEntry
from services.validator.gates.mutants import (
    SPLIT,
    VALID,
    Kind,
    Mutant,
    choose,
    file_mutants,
    nothing,
    output_mutants,
    read_spans,
    script_mutants,
    used_files,
)

FAR = Path(__file__).parents[2] / "services/kernel/heldout/far"
SCRIPT = r"""#!/bin/bash
set -euo pipefail
cd /app
# count 3 things
cat > notes.txt <<'END'
if [ 1 ] ; then ( "
limit: 10
END
for name in a b; do
  echo "$name" >> list.txt
  sort -o list.txt list.txt
done
total() {
  wc -l < list.txt
}
case $(total) in
  2) echo 'two lines' > count.txt ;;
  *) exit 1 ;;
esac
printf '%s\n' one \
  two > tail.txt
ls
"""


def bash(driver: str, given: bytes) -> bytes:
    return subprocess.run(["bash", "-c", driver], input=given, capture_output=True, check=True).stdout


def spans(script: str) -> list[tuple[int, int]]:
    return read_spans(bash(SPLIT, script.encode()))


def mutants(script: str, seed: int = 1) -> list[Mutant]:
    return script_mutants(script.encode(), spans(script), "/app", Random(seed))


def lines_without(script: str, first: int, last: int) -> bytes:
    lines = script.split("\n")
    return "\n".join(lines[: first - 1] + lines[last:]).encode()


def test_a_script_is_cut_into_whole_statements() -> None:
    assert spans(SCRIPT) == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 8), (9, 12), (13, 15), (16, 19), (20, 21), (22, 22)]


def test_a_script_that_does_not_end_gives_the_statements_before() -> None:
    assert spans("touch a\nif true; then\ntouch b\n") == [(1, 1)]
    assert spans("touch a\ncat <<END\nnever closed\n") == [(1, 1)]
    assert spans("touch a") == [(1, 1)]
    assert spans("") == []


def test_hand_written_solutions_are_cut_without_a_gap() -> None:
    for folder in sorted(FAR.iterdir())[:8]:
        script = (folder / "solution/solve.sh").read_text()
        found = spans(script)
        assert [first for first, _ in found] == [1, *(last + 1 for _, last in found[:-1])], folder
        assert found[-1][1] == script.count("\n"), folder


def test_every_step_with_an_effect_is_dropped_once_and_lines_of_loops_too() -> None:
    dropped = [mutant for mutant in mutants(SCRIPT) if mutant.kind is Kind.dropped]
    assert [mutant.where for mutant in dropped] == [f"solve.sh:{line}" for line in (5, 9, 10, 11, 13, 16, 17, 18, 20)]
    assert dropped[0].content == lines_without(SCRIPT, 5, 8)
    assert dropped[1].content == lines_without(SCRIPT, 9, 12)
    assert b'  echo "$name" >> list.txt\n:\ndone\n' in dropped[3].content


def test_steps_without_an_effect_are_left_alone() -> None:
    assert mutants("#!/bin/bash\nset -e\ncd /app\necho hello\ncat notes\nls -l\n\nsleep 1\nexit 0\n# rm 3\n") == []
    kinds = {mutant.where for mutant in mutants("cd /elsewhere\necho hello | tee 3\ncat a > b\ngrep x $(cat y)\n")}
    assert kinds >= {f"solve.sh:{line}" for line in (1, 2, 3, 4)}


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("head -n 2 in.txt > out.txt", {"head -n 3 in.txt > out.txt"}),
        ("chmod 600 key", {"chmod 601 key", "chmod 600 keyq"}),
        ("sed -i s/17/old/ f 2>&1", {"sed -i s/18/old/ f 2>&1"}),
        ("printf '%s is red' x > f", {"printf '%s is redq' x > f"}),
        ('tr "$from" b < in > f', set()),
        ("cp coconut.lst $target", {"cp coconutq.lst $target"}),
    ],
)
def test_values_are_changed_where_they_are_data(line: str, changed: set[str]) -> None:
    found = {
        mutant.content.decode() for seed in range(20) for mutant in mutants(line, seed) if mutant.kind is Kind.value
    }
    assert changed <= found
    assert all(mutant != line for mutant in found)
    assert bool(found) == bool(changed)


def test_neighbours_are_swapped_and_the_second_half_is_cut_off() -> None:
    script = "touch a\ntouch b\n# why\ntouch c\ntouch d\n"
    found = {(mutant.kind, mutant.content.decode()) for mutant in mutants(script)}
    assert (Kind.swapped, "touch b\ntouch a\n# why\ntouch c\ntouch d\n") in found
    assert (Kind.swapped, "touch a\ntouch c\n# why\ntouch b\ntouch d\n") in found
    assert (Kind.half, "touch a\ntouch b\n# why\n") in found
    assert Kind.half not in {mutant.kind for mutant in mutants("touch a\ntouch b\ntouch c\n")}


def test_what_no_longer_parses_is_told_apart() -> None:
    good = Mutant(Kind.value, "solve.sh:1", "", content=b"for x in a; do\n:\ndone\n")
    bad = Mutant(Kind.dropped, "solve.sh:1", "", content=b"for x in a; do\ndone\n")
    open_heredoc = Mutant(Kind.dropped, "solve.sh:1", "", content=b"cat <<END\n")
    python = Mutant(Kind.value, "go.py:1", "", name="go.py", content=b"x = 1\n")
    broken = Mutant(Kind.value, "go.py:1", "", name="go.py", content=b"x = (1\n")
    output = Mutant(Kind.altered, "/app/x", "", content=b"( \0 '", output="/app/x")
    given = [good, bad, open_heredoc, python, broken, output, nothing()]
    said = bash(VALID, b"".join(mutant.to_validate() for mutant in given)).split()
    assert said == [b"good", b"bad", b"bad", b"good", b"bad", b"good", b"good"]


def test_python_beside_the_script_loses_lines_that_can_be_spared() -> None:
    source = b'import os\n\ndef go(x):\n    """Say."""\n    x += 2\n    # 7\n    return x\n\nprint("sum", go(4))\n'
    found = file_mutants("go.py", source, Random(1))
    dropped = {mutant.content for mutant in found if mutant.kind is Kind.dropped}
    assert dropped == {source.replace(b"    x += 2", b"    pass"), source.replace(b'print("sum", go(4))', b"pass")}
    values = {mutant.content for mutant in found if mutant.kind is Kind.value}
    assert {source.replace(b"+= 2", b"+= 3"), source.replace(b'"sum"', b'"sumq"')} <= values
    assert all(b"# 7" in content and b"import os\n" in content for content in values)


def test_files_that_the_script_does_not_name_are_no_part_of_the_solution() -> None:
    files = {
        "solve.sh": FileEntry(b"python3 /solution/lib/go.py\n"),
        "lib/go.py": FileEntry(b"print(1)\n"),
        "README.md": FileEntry(b"see 3\n"),
        "blob.bin": FileEntry(b"\0"),
    }
    assert list(used_files(files)) == [("lib/go.py", b"print(1)\n")]


def test_an_output_is_emptied_and_altered_by_one_line_at_most() -> None:
    content = b"# plan 9\nplaice 12\ncod 7\n"
    emptied, *altered = output_mutants("/app/out", content, Random(3))
    assert (emptied.kind, emptied.content, emptied.output) == (Kind.emptied, b"", "/app/out")
    assert len(altered) == 3
    for mutant in altered:
        was, now = content.decode().split("\n"), mutant.content.decode().split("\n")
        assert now[0] == was[0]
        assert sum(line not in now for line in was) == 1
    binary = output_mutants("/app/out", b"\xff\xfe\0\1", Random(3))
    assert [mutant.content for mutant in binary] == [b"", b"\xff\xfe"]
    assert [mutant.kind for mutant in output_mutants("/app/out", None, Random(3))] == [Kind.emptied]


@pytest.mark.parametrize("seed", range(20))
def test_what_a_program_says_of_itself_is_not_altered(seed: int) -> None:
    program = "\"\"\"Sorts three words.\n\nMade for 2 lists.\n\"\"\"\n\ndef one():\n    '''Gives 1.'''\n    return 7\n"
    altered = [mutant for mutant in output_mutants("/app/sort.py", program.encode(), Random(seed)) if mutant.content]
    assert altered
    assert all(b"Sorts three words.\n\nMade for 2 lists." in (mutant.content or b"") for mutant in altered)
    assert all(b"Gives 1." in (mutant.content or b"") for mutant in altered)
    written = [mutant.change for mutant in file_mutants("sort.py", program.encode(), Random(seed))]
    assert not [change for change in written if "Gives" in change or "lists" in change]


def test_the_choice_takes_turns_by_kind_and_place_and_follows_the_seed() -> None:
    def mutant(kind: Kind, where: str, change: str) -> Mutant:
        return Mutant(kind, where, change)

    altered = [mutant(Kind.altered, where, str(number)) for where in "ab" for number in range(9)]
    given = [*altered, mutant(Kind.dropped, "s:1", ""), mutant(Kind.value, "s:1", "")]
    chosen = choose(given, 4, Random(5))
    assert [each.kind for each in chosen] == [Kind.altered, Kind.dropped, Kind.value, Kind.altered]
    assert {each.where for each in chosen if each.kind is Kind.altered} == {"a", "b"}
    assert chosen == choose(given, 4, Random(5))
    assert choose(given, 100, Random(5))[3:] != choose(given, 100, Random(6))[3:]
    assert len(choose(given, 100, Random(5))) == len(given)
    assert choose([], 3, Random(1)) == []


def test_a_long_change_is_shown_from_where_it_begins() -> None:
    line = "X" * 200 + " 41 " + "Y" * 200
    (found,) = [mutant for mutant in mutants(line) if mutant.kind is Kind.value and "42" in mutant.change]
    was, now = found.change.split(" -> ")
    assert len(was) <= 80
    assert "41" in was
    assert "42" in now
