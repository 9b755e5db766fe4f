"""Which code this is: release and the digest of all our source."""

from hashlib import sha256
from importlib.metadata import version
from pathlib import Path


def code_version() -> str:
    """Equal versions are equal code, also from a changed checkout."""
    root = Path(__file__).parents[2]
    whole = sha256()
    for top in ("schemas", "services"):
        for path in sorted((root / top).rglob("*.py")):
            whole.update(f"{path.relative_to(root)}\0".encode() + sha256(path.read_bytes()).digest())
    return f"{version('envwheel')}+{whole.hexdigest()[:16]}"
