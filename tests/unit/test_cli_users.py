"""Users of services: what they may see, inherit, and be called."""

import os
from pathlib import Path

import pytest

from services.cli.launch import first_shut
from services.cli.users import GID, ROLES, SOURCE, Users, choose_users, clean_environment, visible_paths
from services.kernel.runfile import Deployment


def test_the_topmost_shut_folder_on_the_way_is_found(tmp_path: Path) -> None:
    inner = tmp_path / "open" / "shut" / "inner" / "leaf"
    inner.mkdir(parents=True)
    for folder in (tmp_path / "open", inner.parent, inner):
        folder.chmod(0o755)
    (tmp_path / "open" / "shut").chmod(0o700)
    found = first_shut(inner)
    assert found is not None
    assert found == tmp_path / "open" / "shut" or found in tmp_path.parents
    assert first_shut(Path("/usr/bin")) is None


def test_visible_paths_are_python_packages_source_and_the_run_and_nothing_twice(tmp_path: Path) -> None:
    paths = visible_paths([tmp_path / "run", tmp_path / "run" / "artifacts"])
    assert tmp_path / "run" in paths
    assert tmp_path / "run" / "artifacts" not in paths
    assert any(path == SOURCE or SOURCE.is_relative_to(path) for path in paths)


def test_uids_differ_by_role_and_replica_and_stay() -> None:
    users = Users(separate=True)
    uids = [users.uid_of(role, number) for role in ROLES for number in range(3)]
    assert len(set(uids)) == len(uids)
    assert GID not in uids
    assert Users(False, "because").uid_of("solver", 0) is None
    assert str(Users(False, "because")) == "same: because"


def test_a_service_inherits_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:secret@proxy")
    environment = clean_environment()
    assert "secret" not in str(environment)
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["HOME"] != os.environ.get("HOME")


def test_the_run_file_can_ask_for_one_user(tmp_path: Path) -> None:
    users = choose_users(Deployment(users="same"), tmp_path)
    assert (users.separate, users.why) == (False, "run.toml says so")


def test_who_is_not_root_shares_one_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert choose_users(Deployment(), tmp_path).why == "not started as root"
