"""Layers are one tree; a cached layer is whole and made once, however many make it."""

import os
import stat
from pathlib import Path

import pytest

from services.kernel.harbor.layers import LayerCache, LayerError, Place, directory_mode, locate


@pytest.fixture
def layers(tmp_path: Path) -> tuple[Path, Path]:
    low, high = tmp_path / "low", tmp_path / "high"
    (low / "usr/bin").mkdir(parents=True)
    (low / "app/data").mkdir(parents=True)
    (low / "app/file").write_bytes(b"")
    (low / "bin").symlink_to("usr/bin")
    (low / "app/up").symlink_to("../usr")
    (low / "loop").symlink_to("/loop")
    (low / "gone").mkdir()
    (high / "app").mkdir(parents=True)
    (high / "app/abs").symlink_to("/app/data/more")
    (high / "app/data").mkdir(mode=0o700)
    return low, high


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/", Place("", "directory")),
        ("/bin", Place("usr/bin", "directory")),
        ("/bin/x", Place("usr/bin/x", "absent")),
        ("/app/up/bin/../new/a", Place("usr/new/a", "absent")),
        ("/app/abs/x", Place("app/data/more/x", "absent")),
        ("/../../app//./file", Place("app/file", "file")),
    ],
)
def test_paths_are_followed_inside_the_tree(layers: tuple[Path, Path], path: str, place: Place) -> None:
    assert locate(layers, path) == place


@pytest.mark.parametrize("path", ["/loop", "/app/file/x", "/none/../x", "/app/" + "x" * 256])
def test_paths_that_no_tree_can_hold_are_errors(layers: tuple[Path, Path], path: str) -> None:
    with pytest.raises(LayerError):
        locate(layers, path)


def test_the_topmost_directory_gives_the_mode(layers: tuple[Path, Path]) -> None:
    assert directory_mode(layers, "app/data") == 0o700
    assert directory_mode(layers, "app/none") == 0o755


def test_a_whiteout_hides_what_lies_below(layers: tuple[Path, Path]) -> None:
    try:
        os.mknod(layers[1] / "gone", stat.S_IFCHR | 0o600, os.makedev(0, 0))
    except PermissionError:
        pytest.skip("this user may not make whiteouts")
    assert locate(layers, "/gone/x") == Place("gone/x", "absent")


def test_the_second_to_finish_uses_the_first_ones_layer(tmp_path: Path) -> None:
    one, other = LayerCache(tmp_path), LayerCache(tmp_path)
    with one.making() as first, other.making() as second:
        (first / "x").write_bytes(b"1")
        (second / "x").write_bytes(b"2")
        kept = one.keep(first, "key")
        assert other.keep(second, "key") == kept
    assert (kept / "x").read_bytes() == b"1"
    assert list((tmp_path / "making").iterdir()) == []
    assert one.get("key") == kept
    assert one.get("other") is None


def _fail_making(cache: LayerCache) -> None:
    with cache.making() as made:
        (made / "closed").mkdir()
        (made / "closed/x").write_bytes(b"")
        (made / "closed").chmod(0)
        raise RuntimeError("in the middle")


def test_a_layer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    cache = LayerCache(tmp_path)
    with pytest.raises(RuntimeError):
        _fail_making(cache)
    assert list((tmp_path / "making").iterdir()) == list((tmp_path / "layers").iterdir()) == []


def test_what_was_used_longest_ago_goes_first_and_only_as_much_as_must(tmp_path: Path) -> None:
    cache = LayerCache(tmp_path)
    for key in ("a", "b", "c"):
        with cache.making() as made:
            (made / "x").write_bytes(bytes(100_000))
            cache.keep(made, key)
    for age_s, key in enumerate(("b", "c", "a")):
        os.utime(tmp_path / "used" / key, (1000 - age_s, 1000 - age_s))
    assert list(cache.sizes()) == ["a", "c", "b"]
    cache.get("a")
    assert list(cache.sizes()) == ["c", "b", "a"]
    (tmp_path / "making" / "left-by-a-killed-process").mkdir()
    cache.trim(2 * cache.sizes()["a"])
    assert list(cache.sizes()) == ["b", "a"]
    assert cache.get("c") is None
    assert list((tmp_path / "making").iterdir()) == []
    cache.trim(0)
    assert cache.sizes() == {}
    assert list((tmp_path / "used").iterdir()) == []
