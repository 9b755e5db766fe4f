"""The gate `well-formed`: every trap that Harbor's own loader lets through, or trips over later, is named.

The rows of TRAPS follow what Harbor 0.25 was seen to accept; each says what we answer instead.
"""

import gzip
import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.outcomes import GateOutcome
from services.kernel.archive import FileEntry, pack, read_tree, write_tree
from services.kernel.harbor.task import read_task_dir
from services.kernel.workshop import Workshop
from services.validator.gates.gate import Finding
from services.validator.gates.reading import WellFormed, name_clashes
from tests.support.harbor_tasks import TEST_SH, TOML, greeting
from tests.support.shop import Files, case_of, open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")

Changes = dict[str, str | bytes | None]
OPEN = TOML.replace("no-network", "public")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    async with open_shop(tmp_path_factory.mktemp("well-formed")) as opened:
        yield opened


async def check(shop: Workshop, files: Files | bytes) -> Finding:
    return await WellFormed().check(case_of(shop, files))


def toml(old: str, new: str) -> Changes:
    assert old in TOML
    return {"task.toml": TOML.replace(old, new)}


TRAPS: dict[str, tuple[Changes, str]] = {
    "timeout of zero": (toml("20.0", "0"), "value: agent.timeout_sec"),
    "timeout below zero": (toml("10.0", "-5"), "value: verifier.timeout_sec"),
    "timeout not a number": (toml("10.0", "nan"), "value: verifier.timeout_sec"),
    "timeout without end": (toml("20.0", "inf"), "value: agent.timeout_sec"),
    "timeout as text": (toml("20.0", '"60"'), "value: agent.timeout_sec"),
    "build without end": (toml("20.0\ncpus", "1e309\ncpus"), "value: environment.build_timeout_sec"),
    "no cpu": (toml("cpus = 1", "cpus = 0"), "value: environment.cpus"),
    "less than no cpu": (toml("cpus = 1", "cpus = -1"), "value: environment.cpus"),
    "memory below zero": (toml("256", "-1"), "value: environment.memory_mb"),
    "no disk": (toml("64", "0"), "value: environment.storage_mb"),
    "two answers on the network": (
        toml('network_mode = "no-network"', 'allow_internet = false\nnetwork_mode = "public"'),
        "value: environment.allow_internet: contradicts",
    ),
    "allowlist without hosts": (toml("no-network", "allowlist"), "value: environment.allowed_hosts"),
    "hosts without allowlist": (
        {"task.toml": OPEN + 'allowed_hosts = ["a.b"]\n'},
        "value: environment.allowed_hosts",
    ),
    "version as a number": (toml('schema_version = "1.4"', "version = 1.0"), "1.0 is not text; write it in quotes"),
    "version of tomorrow": (
        toml('"1.4"', '"1.5"'),
        "'1.5' is not known, this envwheel reads Harbor's schema 1.0 to 1.4",
    ),
    "memory in unknown units": (toml("memory_mb = 256", 'memory = "2GiB"'), "value: environment.memory"),
    "byte order mark in the settings": ({"task.toml": "\ufeff" + TOML}, "toml: task.toml"),
    "byte that is not UTF-8": ({"task.toml": TOML.encode() + b"# \xe9\n"}, "toml: task.toml"),
    "duplicate key": (toml("cpus = 1", "cpus = 1\ncpus = 1"), "toml: task.toml"),
    "misspelt key": (toml("memory_mb", "memroy_mb"), "unknown_key: environment.memroy_mb"),
    "misspelt table": (toml("[verifier]", "[verifer]"), "unknown_key: verifer"),
    "CR in the verifier": ({"tests/test.sh": TEST_SH.replace("\n", "\r\n")}, "carriage_return: tests/test.sh"),
    "CR in the solution": ({"solution/solve.sh": "#!/bin/bash\r\n"}, "carriage_return: solution/solve.sh"),
    "CR in the Dockerfile": ({"environment/Dockerfile": "FROM x\r\n"}, "carriage_return: environment/Dockerfile"),
    "byte order mark in a script": ({"tests/test.sh": "\ufeff" + TEST_SH}, "byte_order_mark: tests/test.sh"),
    "empty instruction": ({"instruction.md": ""}, "is empty"),
    "blank instruction": ({"instruction.md": " \n\t\n"}, "is empty"),
    "instruction with a terminal's control codes": ({"instruction.md": "a\x1b[2J"}, "control characters 0x1b"),
    "no solution": ({"solution/solve.sh": None}, "missing_file: solution/solve.sh"),
    "no tests": ({"tests/test.sh": None}, "missing_file: tests/test.sh"),
    "no instruction": ({"instruction.md": None}, "missing_file: instruction.md"),
    "no settings": ({"task.toml": None}, "missing_file: task.toml"),
    "no environment": (
        {"environment/Dockerfile": None, "environment/files/notes.txt": None},
        "missing_file: environment/Dockerfile",
    ),
    "task name over 255 bytes": (toml('"tests/greeting"', f'"tests/{"n" * 256}"'), "value: task.name"),
    "user that is a command": (toml("20.0\n[verifier]", '20.0\nuser = "x; id"\n[verifier]'), "value: agent.user"),
    "relative workdir": (toml('"/app"', '"app"'), "value: environment.workdir"),
    "step outside its folder": ({"task.toml": TOML + '[[steps]]\nname = "../x"\n'}, "value: steps"),
    "two steps of one name": ({"task.toml": TOML + '[[steps]]\nname = "A"\n[[steps]]\nname = "a"\n'}, "value: steps"),
    "step without its files": ({"task.toml": TOML + '[[steps]]\nname = "a"\n'}, "missing_file: steps/a/instruction.md"),
    "artifact outside": ({"task.toml": 'artifacts = ["../../etc"]\n' + TOML}, "value: artifacts"),
    "destination outside": (
        {"task.toml": 'artifacts = [{source = "/x", destination = "../../x"}]\n' + TOML},
        "value: artifacts",
    ),
    "names that differ in case": ({"tests/Data": "1", "tests/data": "2"}, "name_clash: tests/data"),
    "folders that differ in case": ({"tests/A/1": "1", "tests/a/2": "2"}, "name_clash: tests/a"),
    "names that differ in form": ({"tests/\ufb01le": "1", "tests/file": "2"}, "name_clash: tests/\ufb01le"),
    "value of the host": ({"task.toml": TOML + 'env = {KEY = "${SECRET}"}\n'}, "host_env: environment.env"),
}


@pytest.mark.parametrize("trap", TRAPS)
async def test_a_trap_is_named_with_its_place(shop: Workshop, trap: str) -> None:
    changes, reason = TRAPS[trap]
    found = await check(shop, greeting(changes))
    assert found.outcome is GateOutcome.failed
    assert reason in found.detail
    assert any(reason in problem for problem in [*found.content["problems"], *found.content["unsupported"]])


async def test_places_with_one_thing_wrong_are_told_together_and_no_more_than_can_be_read(shop: Workshop) -> None:
    keys = [f"key_{number:02}" for number in range(10)]
    found = await check(shop, greeting({"task.toml": "".join(f"{key} = 1\n" for key in keys) + TOML}))
    shown = ", ".join(keys[:8])
    assert found.detail == f"unknown_key: {shown}, and 2 more: Harbor knows no such key, and would ignore it silently"
    assert len(found.content["problems"]) == 10


async def test_a_task_without_a_solution_is_told_why_it_needs_one(shop: Workshop) -> None:
    found = await check(shop, greeting({"solution/solve.sh": None}))
    assert found.detail == (
        "missing_file: solution/solve.sh: Harbor runs a task without it, but nothing shows then that the task can be "
        "solved: add a reference solution"
    )


FAIR: dict[str, Changes] = {
    "CRLF settings": {"task.toml": TOML.replace("\n", "\r\n")},
    "CRLF instruction": {"instruction.md": "Write the word hi into /app/hello.txt.\r\n"},
    "script fixture with CR": {"environment/files/mend-me.sh": "#!/bin/bash\r\n"},
    "binary fixture": {"environment/files/image.bin": bytes(range(256))},
    "fixture that is an archive bomb": {"environment/files/zeros.gz": gzip.compress(bytes(2**24))},
    "deprecated memory": toml("memory_mb = 256", 'memory = "2G"'),
    "deprecated network": toml('network_mode = "no-network"', "allow_internet = false"),
    "deprecated version": toml('schema_version = "1.4"', 'version = "1.0"'),
    **{f"version 1.{minor}": toml('"1.4"', f'"1.{minor}"') for minor in range(5)},
    "names with spaces and letters of other scripts": {"tests/größe 漢.txt": "1"},
}


@pytest.mark.parametrize("what", FAIR)
async def test_what_is_only_unusual_passes(shop: Workshop, what: str) -> None:
    found = await check(shop, greeting(FAIR[what]))
    assert (found.outcome, found.detail) == (GateOutcome.passed, "")


async def test_an_empty_task_toml_passes_and_every_limit_left_out_is_told(shop: Workshop) -> None:
    found = await check(shop, greeting({"task.toml": '[environment]\nnetwork_mode = "no-network"\n'}))
    assert found.outcome is GateOutcome.passed
    assert found.content["implicit"] == [
        "agent.timeout_sec",
        "verifier.timeout_sec",
        "environment.build_timeout_sec",
        "environment.cpus",
        "environment.memory_mb",
        "environment.storage_mb",
    ]


async def test_every_problem_is_in_the_evidence(shop: Workshop) -> None:
    found = await check(shop, greeting({"instruction.md": "", **toml("cpus = 1", "cpus = 0\nspeed = 3")}))
    assert len(found.content["problems"]) == 3


def tar(**fields: object) -> bytes:
    member = tarfile.TarInfo("environment/files/x")
    for key, value in fields.items():
        setattr(member, key, value)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member, io.BytesIO(b"x" * member.size))
    return buffer.getvalue()


ONE = pack({"a": FileEntry(b"1")})
ARCHIVES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "middle of a header"),
    "another format": (b"PK\x03\x04", "middle of a header"),
    "absolute path": (tar(name="/etc/passwd"), "absolute"),
    "path that climbs": (tar(name="../../x"), "'..'"),
    "symbolic link": (tar(type=tarfile.SYMTYPE, linkname="/etc/passwd"), "a symbolic link"),
    "hard link": (tar(type=tarfile.LNKTYPE, linkname="/etc/shadow"), "a hard link"),
    "device": (tar(type=tarfile.BLKTYPE), "a block device"),
    "FIFO": (tar(type=tarfile.FIFOTYPE), "a FIFO"),
    "setuid": (tar(mode=0o4755), "not canonical"),
    "the same name twice": (ONE[:1024] + ONE, "twice"),
    "letters that are not composed": (tar(name="e\u0301"), "NFC"),
    "a file of 8 GiB that is not there": (ONE[:124] + b"77777777777" + ONE[135:], "not canonical"),
    "compressed": (gzip.compress(ONE), "middle of a header"),
    "more behind the end": (ONE + bytes(512), "trailing"),
}


@pytest.mark.parametrize("attack", ARCHIVES)
async def test_a_hostile_archive_is_refused_with_its_reason(shop: Workshop, attack: str) -> None:
    archive, reason = ARCHIVES[attack]
    found = await check(shop, archive)
    assert found.outcome is GateOutcome.failed
    assert found.detail.startswith("archive: ")
    assert reason in found.detail


GOOD = pack(greeting())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, len(GOOD) - 1), put=st.binary(min_size=1, max_size=8))
async def test_no_damage_to_an_archive_ends_in_anything_but_a_finding(shop: Workshop, place: int, put: bytes) -> None:
    damaged = GOOD[:place] + put + GOOD[place + len(put) :]
    found = await check(shop, damaged)
    assert found.outcome in (GateOutcome.passed, GateOutcome.failed)


@pytest.mark.parametrize("name", ["instruction.md", "environment/passwd", "tests/data", "solution/data"])
@pytest.mark.parametrize("target", ["/etc/hostname", "missing", "."])
async def test_a_link_in_a_task_directory_is_refused_and_not_followed(tmp_path: Path, name: str, target: str) -> None:
    write_tree(greeting(), tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to(target)
    (problem,) = read_task_dir(tmp_path).problems
    assert (problem.code, name in problem.message) == ("tree", True)


async def test_a_directory_within_its_bounds_reads_as_its_archive(shop: Workshop, tmp_path: Path) -> None:
    write_tree(greeting(), tmp_path)
    assert (await check(shop, pack(read_tree(tmp_path)))).outcome is GateOutcome.passed


async def test_names_clash_only_where_one_would_overwrite_the_other() -> None:
    entry = FileEntry(b"")
    assert name_clashes({"a/x": entry, "a/y": entry, "b/X": entry}) == []
    assert [problem.where for problem in name_clashes({"A/x": entry, "a/x": entry})] == ["a", "a/x"]
