"""The user's guide to the gates names every gate with its stage, and every setting with its default."""

import re

import msgspec

from schemas.science import GateRules
from services.validator.gates.run import GATES
from tests.support.tree import ROOT


def test_every_gate_and_every_setting_stands_in_the_guide_as_it_is() -> None:
    page = (ROOT / "docs" / "gates.md").read_text()
    rows = dict(re.findall(r"^\| ([a-z -]+) \| ([a-z]+) \|", page, re.MULTILINE))
    assert {gate.name: gate.cost.name for gate in GATES}.items() <= rows.items()
    settings = dict(re.findall(r"^\| `gates\.([a-z_]+)` \| ([0-9.]+) \|", page, re.MULTILINE))
    assert settings == {name: f"{value:g}" for name, value in msgspec.to_builtins(GateRules()).items()}
