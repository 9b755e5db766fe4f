"""`envwheel-draft`, the program inside a proposer's sandbox that sends `task/` to its host. Standard library only.

`client_program()` packs it with the archive module into one runnable file.
"""

import io
import json
import os
import socket
import struct
import sys
import zipfile
from importlib.resources import files
from pathlib import Path

from services.kernel.archive import ArchiveError, pack, read_tree

SOCKET_PATH = "/run/envwheel/draft.sock"
"""Where the sandbox shows the host's socket; `ENVWHEEL_DRAFT_SOCKET` names another."""
ARCHIVE_BYTES_MAX = 8 * 2**20
FILES_MAX = 500
ANSWER_BYTES_MAX = 4 * 2**20
TIMEOUT_S = 900.0
VERBS = ("check", "submit", "try")
ATTEMPTS_MAX = 8
"""Of the solver on a draft, at one try."""
USAGE = "usage: envwheel-draft check | try N | submit   (in the folder that holds task/)"
TEXTS = ("transcript", "verifier")
"""Of an attempt: they are written into files."""
_MODULES = ("services/kernel/archive.py", "services/proposer/authoring/client.py")
_PACKAGES = ("services", "services/kernel", "services/proposer", "services/proposer/authoring")


class ChannelError(Exception):
    """The draft could not be sent or answered; the message says why."""


def main() -> int:
    """Exit code 0: all gates passed, tried, or submitted; 1: a gate failed, or the draft was refused; 2: no answer."""
    request = request_of(sys.argv[1:])
    if request is None:
        print(USAGE, file=sys.stderr)  # noqa: T201
        return 2
    try:
        answers = ask(request, draft_archive(Path("task")), os.environ.get("ENVWHEEL_DRAFT_SOCKET", SOCKET_PATH))
        if request.startswith("try"):
            answers = with_files(answers, Path("tries"))
    except ChannelError as error:
        print(f"envwheel-draft: {error}", file=sys.stderr)  # noqa: T201
        return 2
    for answer in answers:
        print(json.dumps(answer))  # noqa: T201
    outcomes = {"failed" if "refused" in answer else answer.get("outcome") for answer in answers}
    return 1 if "failed" in outcomes else 2 if "infra_failed" in outcomes else 0


def request_of(words: list[str]) -> str | None:
    """`check`, `submit` or `try N`, with N from 1 to `ATTEMPTS_MAX`; None for anything else."""
    if words in (["check"], ["submit"]):
        return words[0]
    if len(words) == 2 and words[0] == "try" and words[1] in map(str, range(1, ATTEMPTS_MAX + 1)):
        return f"try {words[1]}"
    return None


def with_files(answers: list[dict[str, object]], folder: Path) -> list[dict[str, object]]:
    """The answers with the long texts of attempts in files of a new folder, by their names.

    Raises:
        ChannelError: they cannot be written.
    """
    try:
        number = sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0
        own = folder / f"{number:03}"
        for answer in answers:
            for name in (name for name in TEXTS if name in answer):
                own.mkdir(parents=True, exist_ok=True)
                file = own / f"{answer['attempt']}.{name}.txt"
                file.write_text(str(answer[name]))
                answer[name] = str(file)
    except OSError as error:
        raise ChannelError(f"{folder}/ cannot be written: {error}") from error
    return answers


def draft_archive(folder: Path) -> bytes:
    """Canonical archive of the draft.

    Raises:
        ChannelError: no such folder, or something in it that an archive cannot hold.
    """
    try:
        archive = pack(read_tree(folder, files_max=FILES_MAX, bytes_max=ARCHIVE_BYTES_MAX))
    except (ArchiveError, OSError) as error:
        raise ChannelError(f"{folder}/ cannot be sent: {error}") from error
    if len(archive) > ARCHIVE_BYTES_MAX:
        raise ChannelError(f"{folder}/ has {len(archive)} bytes as an archive; {ARCHIVE_BYTES_MAX} may be sent")
    return archive


def ask(request: str, archive: bytes, socket_path: str) -> list[dict[str, object]]:
    """The request and a line end, 8 bytes of length (big-endian), the archive. The answer: JSON lines.

    Raises:
        ChannelError: there is nobody to ask, or no whole answer came.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(TIMEOUT_S)
            channel.connect(socket_path)
            channel.sendall(request.encode() + b"\n" + struct.pack(">Q", len(archive)) + archive)
            answer = _read_all(channel)
    except FileNotFoundError:
        raise ChannelError(
            f"there is no socket {socket_path}: this sandbox was started without a drafts' channel"
        ) from None
    except OSError as error:
        raise ChannelError(f"no answer over {socket_path}: {error}") from error
    if not answer.endswith(b"\n"):
        raise ChannelError("the host ended without an answer: nothing was checked; try again")
    answers = [json.loads(line) for line in answer.decode().splitlines()]
    if failure := next((found["error"] for found in answers if "error" in found), None):
        raise ChannelError(str(failure))
    return answers


def client_program() -> bytes:
    """The bytes of `envwheel-draft`: a Python zip application, the same on every machine."""
    buffer = io.BytesIO()
    root = files("services")
    members = {f"{package}/__init__.py": b"" for package in _PACKAGES}
    members |= {path: root.joinpath(path.removeprefix("services/")).read_bytes() for path in _MODULES}
    members["__main__.py"] = b"import sys\n\nfrom services.proposer.authoring.client import main\n\nsys.exit(main())\n"
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as program:
        for path, content in sorted(members.items()):
            program.writestr(zipfile.ZipInfo(path), content)
    return b"#!/usr/bin/python3 -IB\n" + buffer.getvalue()


def _read_all(channel: socket.socket) -> bytes:
    received = bytearray()
    while block := channel.recv(65536):
        received += block
        if len(received) > ANSWER_BYTES_MAX:
            raise ChannelError(f"the answer has more than {ANSWER_BYTES_MAX} bytes")
    return bytes(received)
