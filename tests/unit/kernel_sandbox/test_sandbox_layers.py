"""Layer directories: what shows through, what is prepared, what is counted, parted and removed."""

import os
import stat
from pathlib import Path

import pytest

from services.kernel.sandbox.layers import (
    OPAQUE,
    ensure_file,
    ensure_folder,
    join_system,
    merged_files,
    part_system,
    remove_tree,
    system_names,
    tree_bytes,
    visible,
)


def lay(root: Path, *entries: str) -> Path:
    """Entries: `a/b` a file, `a/` a folder, `a>x` a link to x, `-a` a whiteout, `a!` an opaque folder."""
    root.mkdir(exist_ok=True)
    for entry in entries:
        name, _, target = entry.partition(">")
        path = root / name.strip("-!/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if target:
            path.symlink_to(target)
        elif name.startswith("-"):
            os.mknod(path, stat.S_IFCHR)
        elif name.endswith(("/", "!")):
            path.mkdir(exist_ok=True)
            if name.endswith("!"):
                os.setxattr(path, OPAQUE, b"y")
        else:
            path.write_text(name)
    return root


def listing(root: Path) -> list[str]:
    return sorted(os.fspath(path.relative_to(root)) for path in root.rglob("*"))


@pytest.mark.parametrize(
    ("path", "layer"),
    [
        ("only-low", "low"),
        ("both", "high"),
        ("gone", None),
        ("hidden/a", None),
        ("hidden/b", "high"),
        ("open/a", "low"),
        ("link/a", None),
        ("link", "high"),
        ("file/a", None),
        ("file", "high"),
        ("none/at/all", None),
    ],
)
def test_the_topmost_layer_that_has_a_path_shows_it(tmp_path: Path, path: str, layer: str | None) -> None:
    low = lay(tmp_path / "low", "only-low", "both", "gone", "hidden/a", "open/a", "link/a", "file/a")
    high = lay(tmp_path / "high", "both", "-gone", "hidden!", "hidden/b", "open/", "link>open", "file")
    found = visible((low, high), path)
    assert (found[0] if found else None) == (tmp_path / layer / path if layer else None)


def test_a_folder_is_made_over_a_link_and_parents_keep_their_modes(tmp_path: Path) -> None:
    low = lay(tmp_path / "low", "a/link>/etc", "there/", "tmp/")
    (low / "a").chmod(0o751)
    upper = lay(tmp_path / "upper")
    ensure_folder(upper, (low,), "a/link/deep", 0o777)
    ensure_folder(upper, (low,), "there")
    ensure_folder(upper, (low,), "tmp", 0o1777)
    assert listing(upper) == ["a", "a/link", "a/link/deep", "tmp"]
    modes = {name: stat.S_IMODE((upper / name).lstat().st_mode) for name in listing(upper)}
    assert modes == {"a": 0o751, "a/link": 0o755, "a/link/deep": 0o777, "tmp": 0o1777}


def test_a_place_for_a_file_is_made_unless_a_file_is_there(tmp_path: Path) -> None:
    low = lay(tmp_path / "low", "a/file", "link>/etc/passwd")
    upper = lay(tmp_path / "upper")
    for path in ("a/file", "link", "new/file", "top"):
        ensure_file(upper, (low,), path)
    assert listing(upper) == ["link", "new", "new/file", "top"]
    assert not (upper / "link").is_symlink()


def test_disk_use_is_counted_no_further_than_needed(tmp_path: Path) -> None:
    root = lay(tmp_path / "root", "a/", "a/b/", "l>/usr")
    (root / "a/b/big").write_bytes(b"x" * 1_000_000)
    with (root / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    used = tree_bytes(root, 1 << 30)
    assert 1_000_000 <= used < 1_100_000
    assert tree_bytes(root, used) == used
    assert tree_bytes(root, used - 1) > used - 1
    assert tree_bytes(tmp_path / "none", 10) == 0


def test_nothing_hides_in_closed_folders_nor_far_down(tmp_path: Path) -> None:
    root = lay(tmp_path / "root", "a/b/c")
    (root / "a/b/c").write_bytes(b"x" * 100_000)
    (root / "a/b").chmod(0o200)
    (root / "a").chmod(0)
    assert 100_000 <= tree_bytes(root, 1 << 30) < 120_000
    assert [stat.S_IMODE(path.lstat().st_mode) for path in (root / "a",)] == [0]
    (root / "a").chmod(0o700)
    assert stat.S_IMODE((root / "a/b").lstat().st_mode) == 0o200
    (root / "a/b").chmod(0o700)
    deep = root
    while len(os.fsencode(deep)) < 3800:
        deep /= "d" * 100
        deep.mkdir()
    assert tree_bytes(root, 1 << 30) > 1 << 30


def test_programs_and_what_chooses_them_are_parted_and_joined_again(tmp_path: Path) -> None:
    mine = ["app/f", "etc/app.conf", "etc/ssl/cert", "home/lib/x", "library-not-at-root/../x"]
    system = [
        "usr/bin/x",
        "-bin",
        "lib64>/x",
        "etc/ld.so.preload",
        "etc/python3.11/sitecustomize.py",
        "etc/ssl/openssl.cnf",
    ]
    upper = lay(tmp_path / "upper", *mine[:4], *system)
    (upper / "etc").chmod(0o711)
    (upper / "usr").chmod(0o500)
    before = listing(upper)
    part_system(upper, tmp_path / "system")
    assert system_names(upper) == []
    assert listing(upper) == [
        "app",
        "app/f",
        "etc",
        "etc/app.conf",
        "etc/ssl",
        "etc/ssl/cert",
        "home",
        "home/lib",
        "home/lib/x",
    ]
    assert stat.S_IMODE((tmp_path / "system/etc").stat().st_mode) == 0o711
    join_system(upper, tmp_path / "system")
    assert listing(upper) == before
    assert stat.S_IMODE((upper / "usr").stat().st_mode) == 0o500
    (upper / "usr").chmod(0o700)
    assert not (tmp_path / "system").exists()


def test_links_that_lead_astray_go_with_the_system_and_come_back(tmp_path: Path) -> None:
    low = lay(tmp_path / "low", "srv/root>/", "data/f")
    upper = lay(tmp_path / "upper", "app/closed/out>/tests/x", "app/by>/srv/root/tests/x", "data/f>../proc/1/fd/3")
    lay(upper, "app/good>/data", "app/loop>loop", "app/far>/testsuite", "app/back>/dev/null", "opt/all>/../..")
    before = listing(upper)
    (upper / "app/closed").chmod(0o500)
    part_system(upper, tmp_path / "system", [low])
    links = [path for path in upper.rglob("*") if path.is_symlink()]
    assert sorted(path.name for path in links) == ["back", "far", "good", "loop"]
    assert stat.S_IMODE((upper / "app/closed").stat().st_mode) == 0o500
    assert stat.S_IMODE((tmp_path / "system/app/closed").stat().st_mode) == 0o500
    join_system(upper, tmp_path / "system")
    assert listing(upper) == before
    (upper / "app/closed").chmod(0o700)


@pytest.mark.parametrize("planted", ["etc>/app", "-etc", "etc"])
def test_an_etc_that_is_no_folder_goes_with_the_system(tmp_path: Path, planted: str) -> None:
    upper = lay(tmp_path / "upper", planted, "app/ld.so.preload")
    assert system_names(upper) == ["etc"]


def test_a_tree_of_any_depth_and_mode_is_removed(tmp_path: Path) -> None:
    root = lay(tmp_path / "root", "closed/in/f", "l>/etc", "-w")
    os.mkfifo(root / "pipe")
    (root / "closed/in").chmod(0)
    (root / "closed").chmod(0)
    here = os.open(root, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 100, dir_fd=here)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    remove_tree(root)
    remove_tree(root)
    assert list(tmp_path.iterdir()) == []
    assert Path("/etc/passwd").exists()


def test_the_files_of_a_stack_are_those_that_show(tmp_path: Path) -> None:
    low = lay(tmp_path / "low", "only", "both", "gone", "cut/a", "cut/sub/b", "open/a", "was/file", "link/x", "far/f")
    mid = lay(tmp_path / "mid", "-gone", "cut!", "cut/sub/c", "was", "link>low", "far/", "both")
    top = lay(tmp_path / "top", "open/b", "-far/f", "cut/sub/d")
    (top / "both").write_text("top")
    found = {path: (place, size) for path, place, size in merged_files([low, mid, top])}
    shown = ["/both", "/cut/sub/c", "/cut/sub/d", "/only", "/open/a", "/open/b", "/was"]
    assert sorted(found) == shown
    assert found["/both"] == (top / "both", 3)
    assert found["/open/a"] == (low / "open/a", len("open/a"))
