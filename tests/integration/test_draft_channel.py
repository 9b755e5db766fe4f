"""The drafts' channel over a real unix socket, with the real client program and with hostile clients."""

import asyncio
import json
import os
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from schemas.outcomes import GateOutcome, RolloutOutcome
from schemas.parts import GateResult
from services.kernel.archive import FileEntry, pack, unpack, write_tree
from services.kernel.skills.step import FileSpec
from services.proposer.authoring.client import ARCHIVE_BYTES_MAX, client_program
from services.proposer.authoring.server import CONNECTIONS_MAX, DraftChannel, DraftRefusedError, Tried, serve
from services.proposer.authoring.shell_files import write_commands

DRAFT = {"instruction.md": FileEntry(b"Do it.\n"), "tests/test.sh": FileEntry(b"#!/bin/bash\n", True)}
PASSED = GateResult(gate="builds", outcome=GateOutcome.passed)
FAILED = GateResult(gate="oracle", outcome=GateOutcome.failed, detail="reward 0.5\nnot 1")
NO_RESULT = GateResult(gate="builds", outcome=GateOutcome.infra_failed)


class Host:
    """Answers with what it was given, and keeps what came in."""

    def __init__(self, results: Sequence[GateResult] = (PASSED,), error: Exception | None = None) -> None:
        self.results, self.error, self.seen = results, error, list[bytes]()
        self.asked: list[int] = []

    async def check(self, archive: bytes) -> Sequence[GateResult]:
        self.seen.append(archive)
        if self.error:
            raise self.error
        return self.results

    async def submit(self, archive: bytes) -> str:
        self.seen.append(archive)
        return "taken"

    async def attempt(self, archive: bytes, attempts: int) -> Sequence[Tried]:
        """Every other attempt solves it."""
        self.asked.append(attempts)
        if self.error:
            raise self.error
        return [
            Tried(
                RolloutOutcome.solved if place % 2 else RolloutOutcome.unsolved,
                float(place % 2),
                {"done": bool(place % 2), "kept": True},
                f"$ command {place}",
                f"verifier \N{EURO SIGN} {place}",
            )
            for place in range(attempts)
        ]


async def _client(folder: Path, *arguments: str) -> tuple[int, str, str]:
    program = folder / "envwheel-draft"
    program.write_bytes(client_program())
    program.chmod(0o755)
    if not (folder / "task").exists():
        write_tree(DRAFT, folder / "task")
    process = await asyncio.create_subprocess_exec(
        str(program),
        *arguments,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "ENVWHEEL_DRAFT_SOCKET": str(folder / "s")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def _raw(folder: Path, data: bytes, *, close: bool = True) -> bytes:
    reader, writer = await asyncio.open_unix_connection(folder / "s")
    try:
        writer.write(data)
        if close:
            writer.write_eof()
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def _request(verb: bytes, archive: bytes) -> bytes:
    return verb + b"\n" + struct.pack(">Q", len(archive)) + archive


async def test_client_sends_the_canonical_archive_and_tells_the_gates_by_exit_code(tmp_path: Path) -> None:
    for results, exit_code in (([PASSED], 0), ([PASSED, FAILED], 1), ([NO_RESULT], 2)):
        host = Host(results)
        async with serve(DraftChannel(host.check, host.submit), tmp_path / "s"):
            code, out, err = await _client(tmp_path, "check")
        assert (code, err) == (exit_code, "")
        assert host.seen == [pack(DRAFT)]
        assert [json.loads(line)["gate"] for line in out.splitlines()] == [result.gate for result in results]
    assert not (tmp_path / "s").exists()


async def test_a_draft_is_submitted_once_and_nothing_is_taken_afterwards(tmp_path: Path) -> None:
    host = Host()
    async with serve(DraftChannel(host.check, host.submit), tmp_path / "s"):
        assert (await _client(tmp_path, "submit"))[:2] == (0, '{"submitted": "taken"}\n')
        for verb in ("submit", "check"):
            code, out, _ = await _client(tmp_path, verb)
            assert (code, "over" in out) == (1, True)
    assert host.seen == [pack(DRAFT)]


async def test_client_says_what_is_missing(tmp_path: Path) -> None:
    code, _, err = await _client(tmp_path, "check")
    assert (code, "no socket" in err) == (2, True)
    assert (await _client(tmp_path, "fly"))[0] == 2
    (tmp_path / "task" / "link").symlink_to("/etc/passwd")
    code, _, err = await _client(tmp_path, "check")
    assert (code, "cannot be sent" in err, "link" in err) == (2, True, True)


async def test_a_refusal_names_the_reason_and_trouble_of_the_host_is_kept_apart(tmp_path: Path) -> None:
    host = Host(error=DraftRefusedError("too many tokens"))
    channel = DraftChannel(host.check, host.submit)
    async with serve(channel, tmp_path / "s"):
        code, out, _ = await _client(tmp_path, "check")
        assert (code, json.loads(out)) == (1, {"refused": "too many tokens"})
        assert channel.failures == []
        host.error = OSError("disk")
        code, _, err = await _client(tmp_path, "check")
        assert (code, "not at fault" in err) == (2, True)
        assert [str(failure) for failure in channel.failures] == ["disk"]
        host.error = None
        assert (await _client(tmp_path, "check"))[0] == 0


async def test_checks_are_counted(tmp_path: Path) -> None:
    host = Host()
    async with serve(DraftChannel(host.check, host.submit, checks_left=1), tmp_path / "s"):
        assert (await _client(tmp_path, "check"))[0] == 0
        code, out, _ = await _client(tmp_path, "check")
        assert (code, "no draft check is left" in out) == (1, True)
        assert (await _client(tmp_path, "submit"))[0] == 0


async def test_a_draft_can_be_tried_once_it_has_passed_its_check_as_it_is(tmp_path: Path) -> None:
    host = Host(results=[PASSED, FAILED])
    async with serve(DraftChannel(host.check, host.submit, host.attempt, tries_left=2), tmp_path / "s"):
        await _client(tmp_path, "check")
        code, out, _ = await _client(tmp_path, "try", "4")
        assert (code, "passed its check" in json.loads(out)["refused"], host.asked) == (1, True, [])
        host.results = [PASSED]
        await _client(tmp_path, "check")
        code, out, err = await _client(tmp_path, "try", "3")
        assert (code, err, host.asked) == (0, "", [3])
        *attempts, summary = map(json.loads, out.splitlines())
        assert attempts[1] == {
            "attempt": 1,
            "outcome": "solved",
            "reward": 1.0,
            "tests": {"done": True, "kept": True},
            "transcript": "tries/000/1.transcript.txt",
            "verifier": "tries/000/1.verifier.txt",
        }
        assert summary == {
            "rewards": [0.0, 1.0, 0.0],
            "mean": pytest.approx(1 / 3),
            "std": pytest.approx((2 / 9) ** 0.5),
            "commonest_failure": "done",
            "tries_left": 1,
        }
        assert (tmp_path / "tries/000/2.verifier.txt").read_text() == "verifier \N{EURO SIGN} 2"
        assert (tmp_path / "tries/000/2.transcript.txt").read_text() == "$ command 2"
        (tmp_path / "task/instruction.md").write_text("Something else.\n")
        assert "passed its check" in (await _client(tmp_path, "try", "1"))[1]
        await _client(tmp_path, "check")
        assert "tries/001/0.verifier.txt" in (await _client(tmp_path, "try", "1"))[1]
        code, out, _ = await _client(tmp_path, "try", "1")
        assert (code, "no try is left" in out, host.asked) == (1, True, [3, 1])


async def test_trouble_of_a_try_is_kept_apart_and_a_bad_number_is_wrong_usage(tmp_path: Path) -> None:
    host = Host()
    channel = DraftChannel(host.check, host.submit, host.attempt, tries_left=4)
    async with serve(channel, tmp_path / "s"):
        await _client(tmp_path, "check")
        for number in ("0", "9", "-1", "4.0", "many", "٤"):
            code, _, err = await _client(tmp_path, "try", number)
            assert (code, err.startswith("usage: envwheel-draft")) == (2, True)
        for line in (b"try 9\n", b"try\n", b"try 1 1\n", b"check 2\n", b"submit now\n"):
            assert b"unknown request" in await _raw(tmp_path, line + bytes(8))
        (tmp_path / "tries").write_text("in the way")
        code, _, err = await _client(tmp_path, "try", "1")
        assert (code, "tries/ cannot be written" in err) == (2, True)
        host.error = OSError("the log is gone")
        code, _, err = await _client(tmp_path, "try", "1")
        assert (code, "not at fault" in err, len(channel.failures)) == (2, True, 1)
        assert channel.tries_left == 2


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not whole"),
        (b"fly\n" + bytes(8), "unknown request"),
        (b"\xff\xfe\n", "not whole"),
        (b"x" * 200_000, "not whole"),
        (b"check\n\0\0", "not whole"),
        (b"check\n" + struct.pack(">Q", 100) + b"short", "not whole"),
        (b"check\n" + struct.pack(">Q", ARCHIVE_BYTES_MAX + 1), "may be sent"),
        (b"check\n" + struct.pack(">Q", 2**64 - 1), "may be sent"),
        (_request(b"check", b"no archive"), "no canonical archive"),
        (_request(b"submit", pack({"a": FileEntry(b"1")})[:-512]), "no canonical archive"),
        (_request(b"check", pack({f"f{index}": FileEntry(b"") for index in range(501)})), "no canonical archive"),
    ],
)
async def test_a_hostile_request_gets_an_error_and_the_channel_lives(data: bytes, reason: str, tmp_path: Path) -> None:
    host = Host()
    async with serve(DraftChannel(host.check, host.submit), tmp_path / "s"):
        answer = await _raw(tmp_path, data)
        assert reason in json.loads(answer)["error"]
        assert host.seen == []
        assert b"builds" in await _raw(tmp_path, _request(b"check", pack(DRAFT)))


async def test_silent_and_too_many_connections_are_closed(tmp_path: Path) -> None:
    host = Host()
    async with serve(DraftChannel(host.check, host.submit, receive_timeout_s=0.5), tmp_path / "s"):
        silent = [asyncio.create_task(_raw(tmp_path, b"check\n", close=False)) for _ in range(CONNECTIONS_MAX)]
        await asyncio.sleep(0.1)
        assert await _raw(tmp_path, _request(b"check", pack(DRAFT)), close=False) == b""
        answers = await asyncio.gather(*silent)
        assert all(b"no whole request" in answer for answer in answers)
        assert b"builds" in await _raw(tmp_path, _request(b"check", pack(DRAFT)))


async def test_leaving_the_block_ends_what_is_still_running(tmp_path: Path) -> None:
    stopped = asyncio.Event()
    started = asyncio.Event()

    async def check(archive: bytes) -> Sequence[GateResult]:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()
        return []

    async with serve(DraftChannel(check, Host().submit), tmp_path / "s"):
        asking = asyncio.create_task(_raw(tmp_path, _request(b"check", pack(DRAFT))))
        await started.wait()
    await asyncio.wait_for(stopped.wait(), 1)
    assert await asking == b""
    with pytest.raises(ValueError, match="shorter"):
        async with serve(DraftChannel(check, Host().submit), tmp_path / ("x" * 120)):
            pass


def test_client_program_is_the_same_bytes_each_time() -> None:
    assert client_program() == client_program()
    assert client_program().startswith(b"#!/usr/bin/python3 -IB\n")


def test_nasty_contents_survive_the_shell(tmp_path: Path) -> None:
    files = {
        "plain.txt": b"$HOME `date` \\n 'single' \"double\" $(rm -rf /) !! ~ # \\\n\ttabbed\nEND\nEND1\n\n",
        "no end of line": b"last line without an end",
        "folder with 'quotes'/a $b.bin": bytes(range(256)) * 400,
        "empty": b"",
        "crlf.txt": b"one\r\ntwo\r\n",
        "unicode.txt": "\N{EURO SIGN} Grüße \u202e\n".encode(),
        "nul": b"\0\n",
        "latin-1": b"\xff\xe9\n",
        "long.txt": b"x" * 60_000 + b"\n",
        "-dash": b"a\n",
    }
    for path, content in files.items():
        for command in write_commands(f"task/{path}", FileSpec(content, 0o755 if path == "nul" else 0o644)):
            assert len(command) < 64 * 1024
            subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, check=True, env={"PATH": os.environ["PATH"]}, timeout=20
            )
    for path, content in files.items():
        assert (tmp_path / "task" / path).read_bytes() == content, path
    assert (tmp_path / "task/nul").stat().st_mode & 0o777 == 0o755
    assert unpack(pack({path: FileEntry(content) for path, content in files.items() if content}))
