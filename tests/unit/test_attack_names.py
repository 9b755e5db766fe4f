"""Which paths an instruction names: what the attacks write to, and what they may take for the task's own."""

import pytest

from services.validator.gates.attacks_answers import NAMES_MAX, named_paths


@pytest.mark.parametrize(
    ("instruction", "paths"),
    [
        ("Write hi into /app/hello.txt.", ["/app/hello.txt"]),
        ("Copy `data/in.csv` to (/srv/out.csv), then stop.", ["/srv/out.csv", "/app/data/in.csv"]),
        ("Sort coconut.lst into blossom.dat. Then go.", ["/app/coconut.lst", "/app/blossom.dat"]),
        ("Look at /app/x and /app/x/ again, /app/./x too.", ["/app/x"]),
        ("The folder /app, and / and /usr/bin/python3, /etc/passwd, /tests/test.sh, /logs/verifier.", []),
        ("See https://example.org/a/b.html or v1.2, or 3.5 of 10.", []),
        ("Climb to /app/../secret.txt.", ["/secret.txt"]),
        ("No paths at all", []),
    ],
)
def test_named_paths_are_absolute_in_order_and_no_parts_of_the_system(instruction: str, paths: list[str]) -> None:
    assert named_paths(instruction, "/app") == paths


def test_named_paths_are_bounded() -> None:
    assert len(named_paths(" ".join(f"/app/f{number}" for number in range(500)), "/app")) == NAMES_MAX
