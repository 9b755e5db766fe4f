"""Verifiers that run pytest, in images that have none: the tests bring it along, as one archive."""

import io
import py_compile
import tempfile
import zipfile
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")
TESTS_PY = """from pathlib import Path


def test_says_hi():
    assert Path("/app/hello.txt").read_text() == "hi\\n"


def test_keeps_the_notes():
    assert Path("/app/hello.txt").exists()
    assert Path("/app/notes.txt").read_text() == "kilo\\nlima\\n"
"""


def pytest_task(run: str) -> dict[str, str | bytes | None]:
    """Changes to `greeting` that have it graded by what `run` says of /tests/test_outputs.py."""
    test_sh = (
        "#!/bin/bash\nexport PYTHONPATH=/tests/pytest.zip\n"
        f"reward=0\nif {run}; then reward=1; fi\necho $reward > /logs/verifier/reward.txt\n"
    )
    return {"tests/test.sh": test_sh, "tests/test_outputs.py": TESTS_PY, "tests/pytest.zip": pytest_archive()}


@lru_cache
def pytest_archive() -> bytes:
    """This interpreter's pytest and all it needs, compiled where another one can read that, with the sources."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, tempfile.TemporaryDirectory() as room:
        for package in PACKAGES:
            spec = find_spec(package)
            assert spec is not None
            assert spec.origin is not None
            origin = Path(spec.origin)
            folder = origin.parent if origin.name == "__init__.py" else None
            top = folder.parent if folder else origin.parent
            for path in sorted(folder.rglob("*.py")) if folder else [origin]:
                name = str(path.relative_to(top))
                compiled = py_compile.compile(
                    str(path), f"{room}/c", name, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
                )
                assert compiled is not None
                archive.writestr(zipfile.ZipInfo(f"{name}c"), Path(compiled).read_bytes())
                archive.writestr(zipfile.ZipInfo(name), path.read_bytes())
        archive.writestr("pluggy.dist-info/METADATA", f"Name: pluggy\nVersion: {version('pluggy')}\n")
    return buffer.getvalue()
