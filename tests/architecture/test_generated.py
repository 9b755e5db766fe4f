"""Files that are made from the code are as the code makes them."""

import json

from schemas.messages import MESSAGES
from schemas.topology import mermaid
from services.cli.schemas import FOLDER, differences, generate
from tests.support.tree import ROOT


def test_json_schemas_are_as_the_code_says() -> None:
    assert differences() == []
    assert len(list(FOLDER.glob("*.json"))) == len(MESSAGES) + 1


def test_a_schema_carries_bounds_and_refuses_unknown_fields() -> None:
    schema = json.loads(generate()["run_started.v1.json"])
    attempts = schema["$defs"]["CalibrationRules"]["properties"]["attempts"]
    assert attempts["minimum"] == 1
    assert attempts["default"] == 4
    assert schema["$defs"]["RunStarted"]["additionalProperties"] is False
    assert schema["x-said-by"] == "operator"


def test_the_architecture_page_holds_the_diagram_of_the_topology() -> None:
    page = ROOT / "docs" / "ARCHITECTURE.md"
    assert mermaid() in page.read_text()
