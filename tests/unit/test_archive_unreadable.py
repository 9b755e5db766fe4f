"""A tree that cannot be read is no fault of what is in it."""

import os
from pathlib import Path

import pytest

from services.kernel.archive import ArchiveError, TreeUnreadable, read_tree


def test_a_link_is_a_fault_of_the_tree_and_not_of_the_reading(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(ArchiveError, match="'link': a link or special file") as caught:
        read_tree(tmp_path)
    assert not isinstance(caught.value, TreeUnreadable)


@pytest.mark.skipif(os.getuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "secret").chmod(0)
    with pytest.raises(TreeUnreadable, match=r"'secret': unreadable .Permission denied"):
        read_tree(tmp_path)


def test_a_file_that_gets_longer_than_it_says_is_not_taken() -> None:
    """Files of /proc say 0 bytes and hold some: as one that grows while it is read."""
    with pytest.raises(TreeUnreadable, match="changed while it was read"):
        read_tree(Path("/proc/self/net"))
