"""Parts of `env check`: what is found to be checked, what is kept, what the cache lets go, when a change counts."""

import asyncio
import bz2
import gzip
import io
import lzma
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest

from schemas.outcomes import GateOutcome
from schemas.science import Science
from services.cli.checks.cache import CheckCache, open_cache
from services.cli.checks.checker import Checker
from services.cli.checks.kept import KeptVerdicts
from services.cli.checks.many import check_many
from services.cli.checks.table import GateTable, TaskProgress, say_summary, say_verdict
from services.cli.checks.target import find_targets, read_tar
from services.cli.checks.terms import Terms
from services.cli.checks.verdict import Code, GateRecord, TaskVerdict, Word, exit_code
from services.cli.checks.watch import watch
from services.cli.outcome import CliError
from services.kernel.archive import ArchiveError, digest, pack, write_tree
from services.kernel.harbor.layers import LayerCache
from tests.support.harbor_tasks import greeting

ENV = "ab" * 32


def verdict(word: Word = Word.valid, **more: object) -> TaskVerdict:
    gate = GateRecord(gate="builds", outcome=GateOutcome.passed, content={"image": "x"}, observed={"wall_s": 0.1})
    return TaskVerdict(task="t", path="t", env=ENV, verdict=word, gates=(gate,), **more)  # type: ignore[arg-type] # by name


def test_tasks_are_found_at_any_depth_in_order_and_none_inside_another(tmp_path: Path) -> None:
    for name in ("b", "a/deep/one", "a/two"):
        write_tree(greeting(), tmp_path / name)
    write_tree(greeting(), tmp_path / "b/environment/inner")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "readme.md").write_text("no task")
    assert [target.name for target in find_targets([tmp_path])] == ["b", "a/two", "a/deep/one"]
    assert [target.name for target in find_targets([tmp_path / "b", tmp_path])] == ["b", "a/two", "a/deep/one"]


def test_a_folder_without_task_toml_is_a_poor_task_if_it_has_the_parts_of_one(tmp_path: Path) -> None:
    write_tree(greeting({"task.toml": None}), tmp_path / "poor")
    assert [target.path for target in find_targets([tmp_path])] == [tmp_path / "poor"]
    (tmp_path / "none" / "tests").mkdir(parents=True)
    with pytest.raises(CliError, match=r"holds none: a task has a task\.toml"):
        find_targets([tmp_path / "none"])


def test_a_tar_with_and_without_its_folder_gives_the_same_files(tmp_path: Path) -> None:
    write_tree(greeting(), tmp_path / "task")
    for name, inside in (("with.tar", "task"), ("without.tar.xz", ".")):
        with tarfile.open(tmp_path / name, "w:xz" if name.endswith("xz") else "w") as tar:
            tar.add(tmp_path / "task", inside)
    assert digest(pack(read_tar(tmp_path / "with.tar"))) == digest(pack(greeting()))
    assert digest(pack(read_tar(tmp_path / "without.tar.xz"))) == digest(pack(greeting()))


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_a_tar_with_bytes_changed_in_the_middle_is_refused(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    (tmp_path / "f").write_bytes(Random(0).randbytes(20_000))
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        tar.add(tmp_path / "f", "task/f")
    whole = compress((tmp_path / "x.tar").read_bytes())
    middle = len(whole) // 2
    changed = bytes(255 - byte for byte in whole[middle : middle + 40])
    (tmp_path / "x.tar").write_bytes(whole[:middle] + changed + whole[middle + 40 :])
    with pytest.raises(ArchiveError, match="no tar file that can be read"):
        read_tar(tmp_path / "x.tar")


def test_headers_of_a_tar_that_ask_for_too_much_are_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 3 * 2**30
    path.write_bytes(header.tobuf(tarfile.GNU_FORMAT))
    os.truncate(path, 3 * 2**30 + 1024)
    with pytest.raises(ArchiveError, match="more than 536870912 bytes"):
        read_tar(path)
    header.size = 0
    path.write_bytes(header.tobuf() * 2000)
    with pytest.raises(ArchiveError, match="no tar file that can be read"):
        read_tar(path)
    minus = bytearray(tarfile.TarInfo("f").tobuf())
    minus[124:136], minus[148:156] = b"\xff" * 12, b" " * 8
    minus[148:156] = b"%06o\0 " % sum(minus)
    path.write_bytes(bytes(minus) + bytes(1024))
    with pytest.raises(ArchiveError, match="bound of files or bytes"):
        read_tar(path)


def test_a_file_that_is_no_tar_or_ends_too_early_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"no tar at all")
    with pytest.raises(ArchiveError, match="no tar file that can be read"):
        read_tar(tmp_path / "x.tar")
    write_tree(greeting(), tmp_path / "task")
    with tarfile.open(tmp_path / "whole.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "task", "task")
    (tmp_path / "cut.tar.gz").write_bytes((tmp_path / "whole.tar.gz").read_bytes()[:-200])
    with pytest.raises(ArchiveError, match="no tar file that can be read"):
        read_tar(tmp_path / "cut.tar.gz")


def test_one_invalid_task_outweighs_what_could_not_be_checked() -> None:
    assert exit_code([Word.valid, Word.unchecked, Word.invalid]) is Code.invalid
    assert exit_code([Word.valid, Word.unchecked]) is Code.unchecked
    assert exit_code([Word.valid]) is exit_code([]) is Code.valid


def test_a_verdict_is_kept_under_all_that_it_rests_on(tmp_path: Path) -> None:
    kept = KeptVerdicts(tmp_path, {"base": "b", "rules": [1]})
    assert kept.get(ENV) is None
    kept.keep(verdict())
    assert kept.get(ENV) == verdict(kept=True)
    assert kept.get("cd" * 32) is None
    assert KeptVerdicts(tmp_path, {"base": "c", "rules": [1]}).get(ENV) is None
    assert KeptVerdicts(tmp_path, {"base": "b", "rules": [1]}, fresh=True).get(ENV) is None
    assert KeptVerdicts(tmp_path, {"rules": [1], "base": "b"}).get(ENV) is not None


def test_what_could_not_be_checked_is_not_kept_and_a_torn_file_is_nothing(tmp_path: Path) -> None:
    kept = KeptVerdicts(tmp_path, {})
    kept.keep(verdict(Word.unchecked))
    assert kept.get(ENV) is None
    kept.keep(verdict())
    (path,) = tmp_path.glob("*/*.json")
    path.write_bytes(path.read_bytes()[:-5])
    assert kept.get(ENV) is None


def test_a_folder_that_takes_no_verdicts_costs_only_that_they_are_not_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "full").write_text("a file where the folder should be")
    kept = KeptVerdicts(tmp_path / "full", {})
    kept.keep(verdict())
    assert kept.get(ENV) is None
    assert "is not kept" in caplog.text


def test_the_cache_is_trimmed_only_by_one_that_has_it_alone(tmp_path: Path) -> None:
    cache = CheckCache(tmp_path, bytes_max=0, trim_every_s=0.0)
    layers = LayerCache(cache.workshop / "layers")
    with cache.in_use():
        with layers.making() as made:
            (made / "x").write_bytes(bytes(10_000))
            layers.keep(made, "key")
        with cache.in_use():
            assert not cache.clear()
        assert layers.get("key") is not None
        assert (cache.use().layers, cache.use().layer_bytes > 10_000) == (1, True)
    assert layers.get("key") is None
    assert cache.clear()
    assert not cache.workshop.exists()


def test_the_folder_of_the_cache_is_the_one_named_or_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENVWHEEL_CACHE", str(tmp_path / "named"))
    assert open_cache().root == tmp_path / "named"
    assert open_cache(tmp_path / "given").root == tmp_path / "given"
    monkeypatch.delenv("ENVWHEEL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert open_cache().root == tmp_path / "xdg" / "envwheel"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert open_cache().root == Path.home() / ".cache" / "envwheel"


async def test_a_change_during_a_check_begins_it_anew_and_the_end_keeps_the_last_verdict(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1")
    stop, begun, ended = asyncio.Event(), asyncio.Queue[bytes](), []

    async def check() -> TaskVerdict:
        content = (tmp_path / "x").read_bytes()
        await begun.put(content)
        if content == b"1":
            await asyncio.Event().wait()
        ended.append(content)
        return verdict(reason=content.decode())

    watching = asyncio.create_task(watch(tmp_path, check, stop))
    assert await begun.get() == b"1"
    (tmp_path / "x").write_bytes(b"two")
    assert await begun.get() == b"two"
    (tmp_path / "new").mkdir()
    assert await begun.get() == b"two"
    stop.set()
    last = await watching
    assert last is not None
    assert last.reason == "two"
    assert b"1" not in ended


async def test_a_watch_that_is_ended_in_its_first_check_has_no_verdict(tmp_path: Path) -> None:
    stop = asyncio.Event()

    async def check() -> TaskVerdict:
        stop.set()
        await asyncio.Event().wait()
        return verdict()

    assert await watch(tmp_path, check, stop) is None


def test_a_task_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    write_tree(greeting(), tmp_path / "task")
    (target,) = find_targets([tmp_path / "task"])
    assert target.archive() == pack(greeting())
    (tmp_path / "link").symlink_to(tmp_path / "task")
    assert find_targets([tmp_path / "link"])[0].archive() == pack(greeting())
    os.mkfifo(tmp_path / "task" / "tests" / "pipe")
    with pytest.raises(ArchiveError, match="'tests/pipe'"):
        target.archive()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def plain(self) -> str:
        """Without colours."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())


@pytest.fixture(autouse=True)
def terminal_of_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")


def test_on_a_terminal_gates_stand_in_a_table_and_on_none_in_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    record = GateRecord(gate="well-formed", outcome=GateOutcome.failed, detail="a\x1b[31m[b]\nc", wall_s=0.5)
    said = {}
    for screen in (Terminal(), io.StringIO()):
        monkeypatch.setattr("sys.stdout", screen)
        with GateTable() as table:
            table.take(record)
        say_verdict(TaskVerdict(task="t", path="t", env=ENV, verdict=Word.invalid, gates=(record,)))
        said[screen.isatty()] = screen.getvalue()
    assert said[False].splitlines() == [
        "well-formed        failed     0.50 s  a·[31m[b] c",
        f"invalid: {ENV}",
        "well-formed: a·[31m[b] c",
    ]
    for cell in ("evidence", "well-formed", "a·[31m[b] c", "no-op fails"):
        assert cell in said[True]


def test_a_bar_over_tasks_names_what_is_not_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    with TaskProgress(3) as progress:
        progress.take(verdict())
        progress.take(verdict(Word.unchecked, reason="no room on the disk " + "x" * 3000))
    assert len(screen.plain()) < 1500
    assert "could not check t: no room on the disk" in screen.plain()
    assert "2/3" in screen.plain()


def test_a_summary_counts_by_gate_and_says_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    failed = GateRecord(gate="not flaky", outcome=GateOutcome.failed, detail="x" * 3000)
    done = [verdict(), msgspec.structs.replace(verdict(Word.invalid), gates=(failed,)), verdict(kept=True)]
    say_summary(done, 5)
    output = capsys.readouterr().out
    assert re.search(r"^valid +2$", output, re.MULTILINE)
    assert re.search(r"^invalid +1 +not flaky 1$", output, re.MULTILINE)
    assert "1 were checked before and not again" in output
    assert "2 of 5 are not checked yet" in output


async def test_a_fault_of_ours_on_one_task_is_no_verdict_and_ends_nothing(tmp_path: Path) -> None:
    """The workshop is missing: every gate that needs it meets a fault."""
    for name in ("one", "two"):
        write_tree(greeting({"tests/name.txt": name}), tmp_path / name)
    terms = Terms(Science(), grams={}, pool={}, basis={})
    checker = Checker(None, terms)  # type: ignore[arg-type] # the fault
    kept = KeptVerdicts(tmp_path / "kept", {})
    verdicts = [each async for each in check_many(checker, find_targets([tmp_path]), kept, jobs=1)]
    assert [each.verdict for each in verdicts] == [Word.unchecked, Word.unchecked]
    assert all(each.reason.startswith("a fault of envwheel: AttributeError") for each in verdicts)
