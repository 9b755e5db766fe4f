"""Files in the text of one answer of a model: how they have to be written, and a strict reading of hostile text."""

import re

from services.kernel.archive import ArchiveError, FileEntry, pack
from services.proposer.authoring.client import ARCHIVE_BYTES_MAX, FILES_MAX

FORMAT = """Write every file of the environment whole, in this form and no other; what stands outside is not read:

=== file: task.toml
(the content, line by line, as it stands in the file; code fences are not needed)
=== end
=== file: tests/test.sh
(the content)
=== end

Paths are relative to the environment's folder. No file may hold a line that begins with `=== file:` or is `=== end`.
Files that begin with `#!` or end in `.sh` become executable."""

_FILE = re.compile(r"=== file: (\S.*?)(?: ===)?\s*")
_END = re.compile(r"=== end(?: ===)?\s*")
_FENCE = re.compile(r"```[\w.+-]*\s*")


class AnswerError(Exception):
    """The answer holds no environment; the message tells its author what to write instead."""


def read_answer(text: str) -> bytes:
    """The canonical archive of the files in an answer.

    A leading `task/` of paths and a code fence around a whole content are taken away.

    Raises:
        AnswerError: no files, a file without its end, a path twice or not to be held, more than may be sent.
    """
    files: dict[str, FileEntry] = {}
    path, lines = "", list[str]()
    for line in text.rpartition("</think>")[2].split("\n"):
        if begun := _FILE.fullmatch(line):
            if path:
                raise AnswerError(f"`{path[:100]}` has no line `=== end` before the next file")
            path, lines = begun[1].removeprefix("task/"), []
            if path in files:
                raise AnswerError(f"`{path[:100]}` is there twice")
        elif path and _END.fullmatch(line):
            files[path], path = _entry(path, lines), ""
        else:
            lines.append(line)
    if path:
        raise AnswerError(f"`{path[:100]}` has no line `=== end`")
    if not files:
        raise AnswerError("no file was found: each begins with a line `=== file: PATH` and ends with `=== end`")
    return _packed(files)


def _packed(files: dict[str, FileEntry]) -> bytes:
    if len(files) > FILES_MAX:
        raise AnswerError(f"{len(files)} files; {FILES_MAX} are allowed")
    try:
        archive = pack(files)
    except ArchiveError as error:
        raise AnswerError(f"a file cannot be taken: {error}") from error
    if len(archive) > ARCHIVE_BYTES_MAX:
        raise AnswerError(f"the files have {len(archive)} bytes as an archive; {ARCHIVE_BYTES_MAX} are allowed")
    return archive


def _entry(path: str, lines: list[str]) -> FileEntry:
    if len(lines) >= 2 and _FENCE.fullmatch(lines[0]) and lines[-1].strip() == "```":
        lines = lines[1:-1]
    try:
        content = "".join(f"{line}\n" for line in lines).encode()
    except UnicodeEncodeError as error:
        raise AnswerError(f"`{path[:100]}` holds half a surrogate pair: write UTF-8 text") from error
    return FileEntry(content, executable=path.endswith(".sh") or content.startswith(b"#!"))
