"""The house rules that a reader feels: short modules, short functions, honest names, types everywhere."""

import ast
from pathlib import Path

import pytest

from tests.support.tree import imports_of, modules, name_of, parsed

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
DRAWERS = {"util", "utils", "helper", "helpers", "common", "misc", "base", "manager", "managers", "stuff", "tools"}
"""Names of modules that attract everything. `sandbox/base.py` is none: a base is a noun of the domain."""
NOUNS = {"services/kernel/sandbox/base.py"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> list[Function]:
    return [node for node in ast.walk(parsed(path)) if isinstance(node, Function)]


def ids(path: Path) -> str:
    return name_of(path)


@pytest.mark.parametrize("path", modules("schemas", "services", "tests", "benchmarks"), ids=ids)
def test_a_module_fits_a_head(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MODULE_LINES_MAX
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in functions(path)
        if node.end_lineno is not None and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert not long


def test_no_module_is_a_drawer() -> None:
    every = modules("schemas", "services", "tests", "benchmarks")
    assert [name_of(path) for path in every if path.stem in DRAWERS and name_of(path) not in NOUNS] == []


@pytest.mark.parametrize("path", modules(), ids=ids)
def test_every_function_says_its_types(path: Path) -> None:
    bare = []
    for node in functions(path):
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        named = [each for each in arguments if each.arg not in ("self", "cls")]
        if node.returns is None or any(each.annotation is None for each in named):
            bare.append(node.name)
    assert not bare


def test_every_module_says_what_it_is() -> None:
    silent = [name_of(path) for path in modules() if not ast.get_docstring(parsed(path))]
    assert silent == []


def test_nobody_imports_relatively_or_mocks() -> None:
    every = modules("schemas", "services", "tests", "benchmarks")
    relative = [
        name_of(path)
        for path in every
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []
    assert [name_of(path) for path in every if any(name.startswith("unittest") for name in imports_of(path))] == []


def test_names_of_test_files_are_unique() -> None:
    names = [path.name for path in modules("tests") if path.name.startswith("test_")]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_nothing_works_at_import() -> None:
    """Top level calls are definitions and constants; none opens, reads, starts or prints."""
    forbidden = {"open", "print", "run", "Popen", "system", "read_text", "read_bytes", "connect", "basicConfig"}
    found = []
    for path in modules():
        for node in parsed(path).body:
            if isinstance(node, Function | ast.ClassDef | ast.If):
                continue
            calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
            names = {getattr(call.func, "attr", getattr(call.func, "id", "")) for call in calls}
            found += [f"{name_of(path)}:{node.lineno}: {name}" for name in sorted(names & forbidden)]
    assert found == []
