"""The artifact store: whole and durable or not there, checked when read, safe with many writers."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from services.kernel.artifacts import ArtifactStore
from services.kernel.errors import ArtifactCorrupt, ArtifactMissing, ArtifactRefused

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "store").create()


def test_bytes_are_found_under_their_sha256(store: ArtifactStore) -> None:
    assert store.put(b"abc") == ABC
    assert store.get(ABC) == b"abc"
    assert store.has(ABC)
    assert (store.root / "sha256" / "ba" / ABC).read_bytes() == b"abc"
    assert store.put(b"abc") == ABC
    assert list(store) == [ABC]
    assert list((store.root / "incoming").iterdir()) == []


def test_many_are_stored_in_order_with_repetitions_and_the_empty_one(store: ArtifactStore) -> None:
    items = [b"", b"abc", b"x" * 3_000_000, b"abc", *(b"%d" % n for n in range(200))]

    digests = store.put_many(items)

    assert digests == [sha256(item).hexdigest() for item in items]
    assert [store.get(digest) for digest in digests] == items
    assert len(list(store)) == 203
    assert list(store) == sorted(set(digests))
    assert store.put_many([]) == []


def test_files_go_in_and_out_without_being_held_in_memory(store: ArtifactStore, tmp_path: Path) -> None:
    source = tmp_path / "big"
    source.write_bytes(b"0123456789abcdef" * 200_000)

    digest = store.put_file(source)

    assert digest == sha256(source.read_bytes()).hexdigest()
    assert store.put_file(source) == digest
    with store.open(digest) as opened:
        assert opened.read(16) == b"0123456789abcdef"
    assert list((store.root / "incoming").iterdir()) == []


def test_a_link_is_not_followed_into_the_store(store: ArtifactStore, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic link"):
        store.put_file(tmp_path / "link")
    assert list(store) == []


@pytest.mark.parametrize("known", [False, True])
def test_bytes_are_on_disk_before_their_name_and_the_name_before_it_is_told(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    if known:
        store.put(b"abc")
    target, synced = store.path(ABC), []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        synced.append((os.fstat(descriptor).st_ino, target.exists()))

    monkeypatch.setattr(os, "fsync", watched)
    store.put(b"abc")
    bytes_before_name = [(target.stat().st_ino, False)]
    assert synced == ([] if known else bytes_before_name) + [(target.parent.stat().st_ino, True)]


@pytest.mark.parametrize("damage", [b"abd", b"ab", b""])
def test_damaged_bytes_are_an_error_that_names_them(store: ArtifactStore, damage: bytes) -> None:
    store.put(b"abc")
    store.path(ABC).write_bytes(damage)

    with pytest.raises(ArtifactCorrupt, match=ABC) as got:
        store.get(ABC)
    with pytest.raises(ArtifactCorrupt, match=ABC):
        store.open(ABC)
    assert str(store.path(ABC)) in str(got.value)
    if len(damage) != 3:
        with pytest.raises(ArtifactCorrupt, match=f"{len(damage)} bytes instead of 3"):
            store.put(b"abc")


def test_missing_bytes_are_an_error_that_names_them(store: ArtifactStore) -> None:
    with pytest.raises(ArtifactMissing, match=ABC):
        store.get(ABC)
    with pytest.raises(ArtifactMissing, match=ABC):
        store.open(ABC)
    assert not store.has(ABC)


@pytest.mark.parametrize("name", ["", "ba", ABC.upper(), "../" * 3 + "etc/passwd", ABC + "\n", "sha256:" + ABC])
def test_what_is_not_a_digest_never_becomes_a_path(store: ArtifactStore, name: str) -> None:
    with pytest.raises(ArtifactRefused, match="not a sha256 digest"):
        store.get(name)


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactRefused, match="not an artifact store"):
        ArtifactStore(tmp_path).put(b"abc")


def test_modes_hold_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        store = ArtifactStore(tmp_path / "store").create()
        digest = store.put(b"abc")
    finally:
        os.umask(before)
    assert store.path(digest).stat().st_mode & 0o7777 == 0o644
    assert (store.root / "sha256" / "ba").stat().st_mode & 0o7777 == 0o2775
    assert (store.root / "incoming").stat().st_mode & 0o7777 == 0o2775


WRITER = """
import sys
from pathlib import Path
from services.kernel.artifacts import ArtifactStore
store = ArtifactStore(Path(sys.argv[1])).create()
for n in range(int(sys.argv[2])):
    print(store.put(b"%d:" % n * 5000), flush=True)
"""


def start_writer(root: Path, count: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(root), str(count)], stdout=subprocess.PIPE)


def test_writers_of_the_same_bytes_do_not_disturb_each_other(tmp_path: Path) -> None:
    writers = [start_writer(tmp_path / "store", 100) for _ in range(3)]
    said = {writer.communicate(timeout=60)[0] for writer in writers}

    store = ArtifactStore(tmp_path / "store")
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert len(said) == 1
    assert sorted(said.pop().decode().split()) == list(store)
    assert [len(store.get(digest)) for digest in store] == [len(b"%d:" % n * 5000) for n in order(store)]


def order(store: ArtifactStore) -> list[int]:
    """The numbers of `WRITER`'s items, in order of digests."""
    return [int(store.get(digest).partition(b":")[0]) for digest in store]


def test_what_a_killed_writer_named_is_whole_and_its_rest_is_invisible(tmp_path: Path) -> None:
    writer = start_writer(tmp_path / "store", 10**6)
    assert writer.stdout is not None
    named = [writer.stdout.readline().decode().strip() for _ in range(20)]
    writer.kill()
    named += writer.communicate()[0].decode().split("\n")[:-1]

    store = ArtifactStore(tmp_path / "store")
    assert len(named) >= 20
    for digest in named:
        store.get(digest)
    assert len(set(store) - set(named)) <= 1
    for digest in store:
        assert sha256(store.get(digest)).hexdigest() == digest
