"""The source tree as the architecture tests see it."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = ("schemas", "services")


def modules(*tops: str) -> list[Path]:
    """Python files below these folders of the checkout, sorted; data of held-out tasks is not ours to judge."""
    found = [path for top in tops or OURS for path in (ROOT / top).rglob("*.py")]
    return sorted(path for path in found if "heldout/far" not in path.as_posix())


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def imports_of(path: Path) -> Iterator[str]:
    """Dotted names that a module imports, wherever in it."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
