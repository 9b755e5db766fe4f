"""Exports: a run as files, the same bytes each time, read back for replay and never trusted."""

import io
import tarfile
from pathlib import Path

import msgspec
import pytest

from services.kernel.artifacts import ArtifactStore
from services.kernel.errors import ArtifactCorrupt, ArtifactMissing
from services.observer.views.export import ExportError, named_artifacts, read_export, write_export
from services.observer.views.named import artifacts_of
from services.observer.views.replay import Means, replay
from services.observer.views.source import Source
from tests.support.histories import sealed_source, whole_run
from tests.support.wheel import POLICIES


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return whole_run().source()


@pytest.mark.parametrize("name", ["run", "run.tar"])
async def test_an_export_is_read_back_and_replays_equal(tmp_path: Path, name: str) -> None:
    live = await sealed_source(tmp_path / "artifacts", whole_run())
    head = write_export(live, tmp_path / name)
    back = read_export(tmp_path / name)
    assert (head.records, head.last_seq, back.run) == (425, 425, live.run)
    assert list(back.records) == list(live.records)
    found = replay(back, ["log", "views", "decisions"], Means(policies=POLICIES))
    assert [report.equal for report in found] == [True, True, True]
    assert [r.first_difference for r in replay(live, ["log"])] == [None]


@pytest.mark.parametrize("name", ["run.tar"])
def test_the_same_log_gives_the_same_bytes(tmp_path: Path, source: Source, name: str) -> None:
    write_export(source, tmp_path / "a.tar")
    write_export(source, tmp_path / "b.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_artifacts_may_stay_where_they_are(tmp_path: Path, source: Source) -> None:
    store = ArtifactStore(tmp_path / "store").create()
    store.put_many([source.artifacts.get(digest) for digest in named_artifacts(source)])
    write_export(source, tmp_path / "run", artifacts=False)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["export.json", "records.ndjson"]
    assert replay(read_export(tmp_path / "run", artifacts=store), ["log"])[0].equal
    (report,) = replay(read_export(tmp_path / "run"), ["log"])
    assert report.first_difference is not None
    assert (report.first_difference.what, report.first_difference.artifact) == (
        "missing", named_in_order(source)[0],
    )  # fmt: skip


def named_in_order(source: Source) -> list[str]:
    return [digest for event in source.events() for digest in artifacts_of(event)]


def test_one_changed_byte_of_an_exported_artifact_names_it(tmp_path: Path, source: Source) -> None:
    write_export(source, tmp_path / "run")
    path = max((tmp_path / "run" / "artifacts").rglob("*"), key=lambda p: (p.is_file(), p.name))
    path.write_bytes(path.read_bytes() + b"!")
    (report,) = replay(read_export(tmp_path / "run"), ["log"])
    assert report.first_difference is not None
    assert (report.first_difference.what, report.first_difference.artifact) == ("changed", path.name)
    with pytest.raises(ArtifactCorrupt, match=path.name):
        read_export(tmp_path / "run").artifacts.get(path.name)


def test_an_export_never_overwrites(tmp_path: Path, source: Source) -> None:
    write_export(source, tmp_path / "run")
    with pytest.raises(ExportError, match="there already"):
        write_export(source, tmp_path / "run")


def test_a_missing_artifact_ends_the_export_and_leaves_no_whole_looking_one(tmp_path: Path, source: Source) -> None:
    store = ArtifactStore(tmp_path / "store").create()
    with pytest.raises(ArtifactMissing):
        write_export(Source(source.run, source.records, store, source.last_seq), tmp_path / "run.tar")
    assert not (tmp_path / "run.tar").exists()


def tar_of(path: Path, members: dict[str, bytes], **kinds: bytes) -> Path:
    with tarfile.open(path, "w:") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.type = kinds.get(name.partition(".")[0], tarfile.REGTYPE)
            tar.addfile(info, io.BytesIO(data))
    return path


GOOD_HEAD = b'{"format":"envwheel.export.1","run":"test","records":0,"last_seq":0}'


@pytest.mark.parametrize(
    "members",
    [
        {}, {"export.json": b"{"}, {"export.json": GOOD_HEAD}, {"records.ndjson": b""},
        {"export.json": GOOD_HEAD, "records.ndjson": b"garbage\n"},
        {"export.json": GOOD_HEAD.replace(b"export.1", b"export.9"), "records.ndjson": b""},
        {"export.json": GOOD_HEAD.replace(b"}", b',"more":1}'), "records.ndjson": b""},
    ],
)  # fmt: skip
def test_what_is_no_export_is_refused(tmp_path: Path, members: dict[str, bytes]) -> None:
    with pytest.raises(ExportError):
        read_export(tar_of(tmp_path / "x.tar", members))


@pytest.mark.parametrize("change", [{"records": 419}, {"records": 421}, {"last_seq": 419}])
def test_a_head_that_counts_other_records_is_refused(tmp_path: Path, source: Source, change: dict[str, int]) -> None:
    head = write_export(source, tmp_path / "run", artifacts=False)
    assert (head.records, head.last_seq) == (420, 420)
    (tmp_path / "run" / "export.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(head, **change)))
    with pytest.raises(ExportError, match="do not agree"):
        read_export(tmp_path / "run")


def test_a_file_that_is_no_tar_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"no tar at all" * 100)
    with pytest.raises(ExportError):
        read_export(tmp_path / "x.tar")
    with pytest.raises(ExportError):
        read_export(tmp_path / "absent.tar")


def test_members_that_point_elsewhere_are_never_followed_nor_written(tmp_path: Path) -> None:
    path = tar_of(tmp_path / "x.tar", {"export.json": GOOD_HEAD, "records.ndjson": b"", "../escaped": b"x"})
    assert list(read_export(path).records) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.tar"]
    linked = tar_of(tmp_path / "y.tar", {"export.json": b"", "records.ndjson": b""}, export=tarfile.SYMTYPE)
    with pytest.raises(ExportError):
        read_export(linked)


def test_a_link_in_a_folder_is_refused(tmp_path: Path, source: Source) -> None:
    write_export(source, tmp_path / "run", artifacts=False)
    (tmp_path / "run" / "records.ndjson").rename(tmp_path / "elsewhere")
    (tmp_path / "run" / "records.ndjson").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ExportError):
        read_export(tmp_path / "run")
