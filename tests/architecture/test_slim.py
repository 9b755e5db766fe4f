"""What an import drags in, seen at run time: static graphs miss lazy imports."""

import os
import subprocess
import sys

import pytest

from tests.support.tree import ROOT

HEAVY = ("torch", "nats", "duckdb", "numpy", "opentelemetry", "tokenizers", "docker")


def loaded_by(statement: str) -> set[str]:
    """Modules that a fresh Python has loaded after the statement, less what it starts with."""
    code = f"import sys; before = set(sys.modules)\n{statement}\nprint(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["schemas.messages", "schemas.codec", "schemas.topology", "schemas.identity"])
def test_schemas_load_nothing_heavy(module: str) -> None:
    loaded = loaded_by(f"import {module}")
    assert module in loaded
    assert loaded.isdisjoint({*HEAVY, "asyncio", "subprocess", "socket", "services"})


@pytest.mark.parametrize("role", ["proposer", "validator", "solver", "trainer", "observer"])
def test_a_policy_loads_schemas_alone(role: str) -> None:
    loaded = loaded_by(f"import services.{role}.policy")
    assert loaded.isdisjoint({*HEAVY, "asyncio", "subprocess", "socket"})
    assert {name for name in loaded if name.startswith("services.kernel")} == set()


def test_help_loads_no_command() -> None:
    loaded = loaded_by("from services.cli.parser import build_parser\nbuild_parser().format_help()")
    assert loaded.isdisjoint(HEAVY)
    assert not any(name.startswith(("services.cli.commands.", "services.kernel", "schemas")) for name in loaded)


def test_help_is_there_at_once() -> None:
    """150 ms of CPU, the interpreter included; the best of five. CPU, since the machine has other things to do."""
    assert min(_cpu_s([sys.executable, "-m", "services.cli", "--help"]) for _ in range(5)) < 0.15


def test_only_models_and_learner_load_torch() -> None:
    for module in ("services.kernel.models", "services.kernel.service", "services.kernel.models.trajectory"):
        assert "torch" not in loaded_by(f"import {module}"), module


def _cpu_s(command: list[str]) -> float:
    before = os.times()
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system
