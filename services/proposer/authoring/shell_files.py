"""Command lines that write a file's exact bytes through a shell."""

import base64
import shlex
from collections.abc import Iterator

from services.kernel.skills.step import FileSpec

_LINE = 76
_CHUNK_BYTES = 24_000
"""Before base64; one command stays below 64 KiB, what the terminal harness takes."""


def write_commands(path: str, spec: FileSpec) -> Iterator[str]:
    """Plain text goes in as a quoted here-document, all else as base64."""
    target = shlex.quote(path)
    folder = shlex.quote(path.rpartition("/")[0] or ".")
    mode = f" && chmod {spec.mode:o} {target}"
    prefix = f"mkdir -p {folder} && "
    if (text := _plain(spec.content)) is not None:
        yield f"{prefix}cat > {target} <<'{(mark := _mark(text))}'{mode}\n{text}{mark}"
        return
    size = len(spec.content)
    chunks = [spec.content[start : start + _CHUNK_BYTES] for start in range(0, size, _CHUNK_BYTES)] or [b""]
    for index, chunk in enumerate(chunks):
        into = ">" if index == 0 else ">>"
        encoded = base64.b64encode(chunk).decode()
        body = "".join(f"{encoded[start : start + _LINE]}\n" for start in range(0, len(encoded), _LINE))
        last = mode if index == len(chunks) - 1 else ""
        yield f"{prefix if index == 0 else ''}base64 -d {into} {target} <<'END'{last}\n{body}END"


def _plain(content: bytes) -> str | None:
    """The text, if a here-document and every harness carry it unchanged: printable ASCII lines, each one ended."""
    if len(content) > _CHUNK_BYTES or not content.endswith(b"\n") or not content.isascii():
        return None
    text = content.decode()
    return text if all(character.isprintable() or character in "\n\t" for character in text) else None


def _mark(text: str) -> str:
    taken = set(text.split("\n"))
    return next(mark for mark in (f"END{number or ''}" for number in range(len(taken) + 1)) if mark not in taken)
