"""The parts of PID 1 that need no sandbox: frames, kept output, feeding pipes."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.kernel.sandbox.inside.files import RefusedError, open_parent
from services.kernel.sandbox.inside.streams import CHUNK_BYTES, Feed, Output, read_available
from services.kernel.sandbox.inside.wire import pack, unpack


@given(st.lists(st.binary(max_size=300)))
def test_a_frame_gives_back_its_parts(parts: list[bytes]) -> None:
    frame = pack(*parts)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert unpack(frame[4:]) == parts


@given(st.lists(st.binary(max_size=30)), st.binary(min_size=1, max_size=30), st.data())
def test_a_frame_that_is_cut_within_a_part_is_an_error(parts: list[bytes], last: bytes, data: st.DataObject) -> None:
    body = pack(*parts, last)[4:]
    cut = data.draw(st.integers(1, len(last) + 3))
    with pytest.raises(ValueError, match="malformed"):
        unpack(body[:-cut])


@given(st.lists(st.binary(max_size=3 * CHUNK_BYTES), max_size=6), st.integers(1, 1000))
def test_output_keeps_head_and_tail(chunks: list[bytes], bytes_max: int) -> None:
    output, whole = Output(bytes_max), b"".join(chunks)
    for chunk in chunks:
        output.add(chunk)
    head = (bytes_max + 1) // 2
    tail = bytes_max - head
    expected = whole if len(whole) <= bytes_max else whole[:head] + (whole[-tail:] if tail else b"")
    assert (output.kept(), output.total) == (expected, len(whole))


def test_a_feed_writes_as_fast_as_it_is_read_and_closes_at_the_end() -> None:
    data = os.urandom(300_000)
    feed = Feed(data)
    os.set_blocking(feed.read_fd, False)
    output, ended = Output(len(data)), False
    while not ended:
        ended = read_available(feed.read_fd, output)
        feed.write()
    assert output.kept() == data
    assert feed.write_fd == -1
    os.close(feed.read_fd)


def test_a_feed_that_nobody_reads_is_done() -> None:
    feed = Feed(bytes(300_000))
    os.close(feed.read_fd)
    assert feed.write()


def test_no_link_is_followed_on_the_way_to_a_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("way")
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    fd, name = open_parent(os.fsencode(folder / "real/new/file"), make=True)
    os.close(fd)
    assert (name, [path.name for path in (folder / "real").iterdir()]) == (b"file", ["new"])
    for make in (True, False):
        with pytest.raises((RefusedError, NotADirectoryError)):
            open_parent(os.fsencode(folder / "link/new/file"), make=make)
