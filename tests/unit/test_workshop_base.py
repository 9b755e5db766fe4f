"""Which root file system sandboxes start from, and whose files it is made of."""

import argparse
import os
from pathlib import Path

import pytest

from services.cli.commands.wheel import _named
from services.kernel.runfile import RunFile
from services.kernel.sandbox.base import host_base
from services.kernel.workshop import choose_base

NOTHING_SAID = argparse.Namespace(seed=None, solvers=None)


def test_a_base_of_our_own_is_used_where_it_lies(tmp_path: Path) -> None:
    made = host_base(tmp_path / "made")
    assert choose_base(str(made.root.parent), tmp_path / "work").root == made.root


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_base_of_another_user_is_copied_once_and_keeps_its_digest(tmp_path: Path) -> None:
    made = host_base(tmp_path / "made")
    os.chown(made.root.parent, 65534, 65534)
    chosen = choose_base(str(made.root.parent), tmp_path / "work")
    assert chosen.root.is_relative_to(tmp_path / "work")
    assert chosen.digest == made.digest
    assert choose_base(str(made.root.parent), tmp_path / "work") == chosen


def test_auto_takes_the_built_base_where_there_is_one_else_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _named(RunFile(), tmp_path / "run", NOTHING_SAID).deployment.base == "host"
    built = tmp_path / "bases" / "default"
    built.mkdir(parents=True)
    (built / "base.json").write_text("{}")
    assert _named(RunFile(), tmp_path / "run", NOTHING_SAID).deployment.base == str(built)
