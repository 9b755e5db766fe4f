#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
import tomllib

def show(value):
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, list):
        return ",".join(map(show, value))
    return str(value)

def walk(table, path):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from walk(value, [*path, key])
        else:
            yield "_".join([*path, key]).replace("-", "_").upper(), show(value)

settings = dict(walk(tomllib.load(open("observatory.toml", "rb")), []))
with open("observatory.env", "w") as out:
    for key in sorted(settings):
        print(f"{key}={settings[key]}", file=out)
PY
