"""The import contracts of pyproject.toml hold, and nobody but the kernel's JetStream modules knows NATS."""

import subprocess
import sys
from pathlib import Path

from tests.support.tree import ROOT, imports_of, modules, name_of

LINT = Path(sys.executable).with_name("lint-imports")


def test_import_contracts_are_kept() -> None:
    done = subprocess.run([LINT, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "0 broken" in done.stdout


def test_nats_is_imported_in_one_room() -> None:
    users = {name_of(path) for path in modules() if any(name.split(".")[0] == "nats" for name in imports_of(path))}
    assert users
    assert all(name.startswith("services/kernel/jetstream") for name in users)


def test_torch_is_imported_in_two_rooms() -> None:
    users = {name_of(path) for path in modules() if any(name.split(".")[0] == "torch" for name in imports_of(path))}
    assert users
    assert all(name.startswith(("services/kernel/models/", "services/trainer/learner/")) for name in users)
