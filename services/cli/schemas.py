"""`schemas/json/`: JSON Schema of every message, made from the code.

python -m services.cli.schemas            writes the files
python -m services.cli.schemas --check    ends with 1 where one is missing, stale or not ours
"""

import sys
from pathlib import Path
from typing import Any

import msgspec

import schemas
from schemas.codec import TYPE_PREFIX
from schemas.envelope import Meta
from schemas.messages import MESSAGES
from schemas.topology import EDGES
from services.cli.outcome import Exit, say, warn

FOLDER = Path(schemas.__file__).parent / "json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def generate() -> dict[str, bytes]:
    """File name to content: one a message, and one for meta."""
    found = {"meta.json": _file("Meta of a record", msgspec.json.schema(Meta))}
    for message in MESSAGES:
        type_ = f"{TYPE_PREFIX}{message.name}.v{message.version}"
        title = f"{message.__name__}, {message.nature.value}: data.body of {type_}"
        said_by = ", ".join(role.value for role in EDGES[message.name].said_by)
        found[f"{message.name}.v{message.version}.json"] = _file(title, msgspec.json.schema(message), said_by=said_by)
    return found


def differences() -> list[str]:
    """Names of files in the folder that are not as `generate` gives them."""
    wanted = generate()
    present = {path.name: path.read_bytes() for path in FOLDER.glob("*")}
    return sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))


def main(argv: list[str]) -> int:
    if argv == ["--check"]:
        for name in differences():
            warn(f"schemas/json/{name} differs from the code: run python -m services.cli.schemas")
        return Exit.difference if differences() else Exit.ok
    if argv:
        warn("usage: python -m services.cli.schemas [--check]")
        return Exit.usage
    FOLDER.mkdir(exist_ok=True)
    wanted = generate()
    for path in FOLDER.glob("*"):
        if path.name not in wanted:
            path.unlink()
    for name, content in wanted.items():
        (FOLDER / name).write_bytes(content)
    say(f"{len(wanted)} files in {FOLDER}")
    return Exit.ok


def _file(title: str, schema: dict[str, Any], **more: str) -> bytes:
    ours = {f"x-{key.replace('_', '-')}": text for key, text in more.items()}
    whole = {"$schema": _DIALECT, "$comment": title, **ours}
    return msgspec.json.format(msgspec.json.encode(whole | schema), indent=2) + b"\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
