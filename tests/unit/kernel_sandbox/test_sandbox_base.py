"""Bases: what their digest covers, and when one is refused."""

import json
import os
from pathlib import Path

import pytest

from services.kernel.sandbox.base import Base, build_base, host_base, load_base
from services.kernel.sandbox.launch import fixed_environment, uid_of
from services.kernel.sandbox.packages import Package, lock_bytes, read_lock
from services.kernel.sandbox.protocol import Image, Pins, SandboxError, SandboxRefusedError


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    return host_base(tmp_path_factory.mktemp("base"))


def test_the_same_host_gives_the_same_base_whatever_the_umask(base: Base, tmp_path: Path) -> None:
    assert host_base(base.root.parents[1]) == base
    before = os.umask(0o077)
    try:
        assert host_base(tmp_path).digest == base.digest
    finally:
        os.umask(before)
    assert [path.name for path in tmp_path.iterdir()] == [f"host-{base.digest[:16]}"]


def test_a_host_base_shows_usr_and_little_else(base: Base) -> None:
    assert base.image("/w") == Image(base.digest, (base.root,), base.host_binds, "/w")
    assert Path("/usr") in base.host_binds
    passwd = (base.root / "etc/passwd").read_text()
    assert [line.split(":")[0] for line in passwd.splitlines()] == ["root", "daemon", "agent", "nobody"]
    assert not (base.root / "etc/shadow").exists()


def test_a_base_that_changed_is_not_loaded(base: Base, tmp_path: Path) -> None:
    own = host_base(tmp_path)
    assert load_base(own.root.parent) == own
    (own.root / "etc/passwd").write_text("root::0:0::/:/bin/sh\n")
    with pytest.raises(SandboxError, match="etc/passwd"):
        load_base(own.root.parent)
    (own.root.parent / "base.json").write_text("{}")
    with pytest.raises(SandboxError, match="envwheel base build"):
        load_base(own.root.parent)


def test_a_base_is_not_built_over_something_else_or_from_no_lock(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/file").touch()
    with pytest.raises(SandboxError, match="not empty"):
        build_base(tmp_path / "out")
    for wrong in ("", "[]", '{"packages": [{"name": "a"}]}'):
        (tmp_path / "lock").write_text(wrong)
        with pytest.raises(SandboxError, match="lock"):
            build_base(tmp_path / "new", tmp_path / "lock")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "out"]


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    packages = [Package("b", "1:2-3", "f" * 64), Package("a", "1", "0" * 64)]
    (tmp_path / "lock").write_bytes(lock_bytes(packages))
    assert read_lock(tmp_path / "lock") == sorted(packages)


@pytest.mark.slow
@pytest.mark.skipif("ENVWHEEL_BUILD_BASE" not in os.environ, reason="fetches 60 MB twice: set ENVWHEEL_BUILD_BASE=1")
def test_a_built_base_is_built_again_equal_from_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = build_base(Path("first"))
    assert first.root.is_absolute()
    closed = [path for path in first.root.rglob("*") if not path.is_symlink() and not path.stat().st_mode & 0o004]
    assert closed == [], "services of other users cannot copy it"
    lock = tmp_path / "first/packages.json"
    assert build_base(tmp_path / "second", lock).digest == first.digest
    assert load_base(tmp_path / "second").host_binds == ()
    entries = json.loads(lock.read_bytes())
    entries["packages"][0]["sha256"] = "0" * 64
    (tmp_path / "wrong").write_text(json.dumps(entries))
    with pytest.raises(SandboxError, match=entries["packages"][0]["name"]):
        build_base(tmp_path / "third", tmp_path / "wrong")


def test_users_are_those_of_the_image(base: Base) -> None:
    image = base.image()
    assert [uid_of(image, user) for user in ("root", "0", "agent", "1000:1000", "nobody", "4242")] == [
        0,
        0,
        1000,
        1000,
        65534,
        4242,
    ]
    for unknown in ("", "stranger", "-1", "root x"):
        with pytest.raises(SandboxRefusedError):
            uid_of(image, unknown)


def test_the_images_own_variables_win_and_a_shifted_clock_needs_the_library(base: Base, tmp_path: Path) -> None:
    image = Image("0" * 64, (base.root, tmp_path), env=(("PATH", "/x"), ("A", "b")))
    env = fixed_environment(image, Pins(user_uid=1000), trusted_system=True)
    assert (env["PATH"], env["A"], env["HOME"], env["PYTHONNOUSERSITE"]) == ("/x", "b", "/home/agent", "1")
    with pytest.raises(SandboxRefusedError, match="install the package faketime in the base"):
        fixed_environment(image, Pins(clock_offset_s=-60), trusted_system=False)
    (tmp_path / "usr/lib/x/faketime").mkdir(parents=True)
    (tmp_path / "usr/lib/x/faketime/libfaketime.so.1").touch()
    shifted = fixed_environment(image, Pins(clock_offset_s=-60), trusted_system=False)
    assert (shifted["LD_PRELOAD"], shifted["FAKETIME"]) == ("/usr/lib/x/faketime/libfaketime.so.1", "-60s")
