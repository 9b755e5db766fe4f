"""File name patterns mean what they mean to Docker, and no pattern takes long."""

import time

import pytest

from services.kernel.archive import FileEntry
from services.kernel.harbor.patterns import PatternError, expand, matches, without_ignored


@pytest.mark.parametrize(
    ("pattern", "path", "is_match"),
    [
        ("*.txt", "a.txt", True),
        ("*.txt", "d/a.txt", False),
        ("**/*.txt", "a.txt", True),
        ("**/*.txt", "d/e/a.txt", True),
        ("d/**", "d/e/f", True),
        ("d/**/f", "d/f", True),
        ("d/**/f", "e/f", False),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[a-c].md", "b.md", True),
        ("[^a-c].md", "b.md", False),
        ("a\\*", "a*", True),
        ("a\\*", "ab", False),
    ],
)
def test_what_a_pattern_matches(pattern: str, path: str, is_match: bool) -> None:
    assert matches(pattern, path) is is_match


def test_the_last_rule_that_matches_a_file_or_a_folder_above_it_decides() -> None:
    names = ["Dockerfile", "keep/a", "keep/b", "node/x/y", "readme.md", "docs/readme.md", "tmp.log"]
    rules = b"\xef\xbb\xbf# none\n\n node \n*.md\n/keep/\n!keep/b\n*.log\n!*.log\n!./docs/../readme.md\n"
    kept = without_ignored({name: FileEntry(b"") for name in names} | {".dockerignore": FileEntry(rules)})
    assert sorted(kept) == [".dockerignore", "Dockerfile", "docs/readme.md", "keep/b", "readme.md", "tmp.log"]


def test_the_rules_beside_a_dockerfile_go_first() -> None:
    context = {"a": b"", "b": b"", ".dockerignore": b"a", "Dockerfile.dockerignore": b"b"}
    assert "b" not in without_ignored({name: FileEntry(content) for name, content in context.items()})


def test_rules_that_cannot_be_read_are_an_error() -> None:
    for rules in (b"\xff", b"a\n" * 501):
        with pytest.raises(PatternError, match="dockerignore"):
            without_ignored({".dockerignore": FileEntry(rules)})


def test_a_pattern_names_files_and_folders_alike() -> None:
    assert expand("d*", {name: FileEntry(b"") for name in ("d1/a", "d2", "e/d3")}) == ["d1", "d2"]


def test_a_hostile_pattern_takes_no_time_to_speak_of() -> None:
    began_s = time.process_time()
    assert not matches("/".join(["**", "*a*a*a*a*a*b"] * 50), "/".join(["a" * 100] * 80))
    assert time.process_time() - began_s < 5.0
