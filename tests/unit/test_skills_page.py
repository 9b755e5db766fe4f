"""The page of skills names every brain, and every family with its catalogue and number of skills."""

import re

from services.proposer.authoring.procedural import BRAINS
from services.proposer.authoring.skills.catalogue import CORE, WIDE
from tests.support.tree import ROOT


def test_every_brain_and_every_family_stands_on_the_page_as_it_is() -> None:
    page = (ROOT / "docs" / "skills.md").read_text()
    assert set(re.findall(r"^\| `(procedural[a-z-]*)` \|", page, re.MULTILINE)) == set(BRAINS)
    rows = re.findall(r"^\| ([a-z0-9]+) \| (core|wide) \| (\d+) \|", page, re.MULTILINE)
    assert rows == [
        (family, "core" if family in CORE.families else "wide", str(len(WIDE.of_family(family))))
        for family in WIDE.families
    ]
