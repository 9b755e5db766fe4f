"""Files in the text of an answer: what is taken, and what its author is told where nothing is."""

import pytest

from services.kernel.archive import FileEntry, unpack
from services.proposer.authoring.answer import FORMAT, AnswerError, read_answer
from services.proposer.authoring.client import FILES_MAX

ONE = "=== file: a.txt\nhi\n=== end"


def read(text: str) -> dict[str, FileEntry]:
    return unpack(read_answer(text))


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (ONE, b"hi\n"),
        (f"Sure! Here it is:\n```\n{ONE}\n```\nI hope it helps.", b"hi\n"),
        (f"<think>\n=== file: b\nmaybe\n</think>\n{ONE}\n", b"hi\n"),
        ("=== file: a.txt ===\r\nhi\n=== end ===\r\n", b"hi\n"),
        ("=== file: task/a.txt\n```text\nhi\n```\n=== end", b"hi\n"),
        ("=== file: a.txt\n```\n=== end", b"```\n"),
        ("=== file: a.txt\n# Use\n```bash\nls\n```\n=== end", b"# Use\n```bash\nls\n```\n"),
        ("=== file: a.txt\n  === end\n=== ending\n\n=== end", b"  === end\n=== ending\n\n"),
        ("=== file: a.txt\n=== end", b""),
        ("=== file: a.txt\n\N{EURO SIGN}\x00\n=== end", "\N{EURO SIGN}\0\n".encode()),
    ],
)
def test_a_file_is_taken_as_it_stands_whatever_stands_around_it(text: str, content: bytes) -> None:
    assert read(text) == {"a.txt": FileEntry(content)}


def test_scripts_are_executable_and_files_keep_to_their_folders() -> None:
    files = read("=== file: solution/solve.sh\nls\n=== end\nnow\n=== file: environment/files/run\n#!/bin/sh\n=== end")
    assert files == {
        "solution/solve.sh": FileEntry(b"ls\n", executable=True),
        "environment/files/run": FileEntry(b"#!/bin/sh\n", executable=True),
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no file was found"),
        ("I cannot do that.", "no file was found"),
        ("```\n{}\n```", "no file was found"),
        ("=== file: a\nhi", "`a` has no line `=== end`"),
        ("=== file: a\nhi\n=== file: b\n=== end", "`a` has no line `=== end` before the next file"),
        (f"{ONE}\n{ONE}", "`a.txt` is there twice"),
        ("=== file: ../../etc/passwd\nx\n=== end", "'..' part"),
        ("=== file: /etc/passwd\nx\n=== end", "absolute"),
        ("=== file: tests/\u202etxt.sh\nx\n=== end", "invisible"),
        ("=== file: a\n=== end\n=== file: a/b\n=== end", "file and a directory"),
        ("=== file: task/\nx\n=== end", "no file was found"),
        ("=== file: a\n\ud800\n=== end", "surrogate"),
        ("=== file: \ud800\nx\n=== end", "UTF-8"),
        (f"=== file: {'x' * 2000}\nx\n=== end", "longer than"),
        ("=== file: a\n" + "x" * (8 * 2**20) + "\n=== end", "as an archive"),
        ("".join(f"=== file: {n}\n=== end\n" for n in range(FILES_MAX + 1)), f"{FILES_MAX} are allowed"),
    ],
)
def test_an_answer_that_cannot_be_taken_tells_its_author_why(text: str, told: str) -> None:
    with pytest.raises(AnswerError) as caught:
        read_answer(text)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 500


def test_the_form_that_models_are_shown_is_one_that_is_read() -> None:
    assert read(FORMAT).keys() == {"task.toml", "tests/test.sh"}
