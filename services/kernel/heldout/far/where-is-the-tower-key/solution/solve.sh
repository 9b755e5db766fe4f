#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
import json

def walk(node, path):
    if isinstance(node, dict):
        if node.get("item") == "tower key":
            open("key_path.txt", "w").write("/".join(path) + "\n")
            open("key_tag.txt", "w").write(node["tag"] + "\n")
        for key, value in node.items():
            walk(value, [*path, key])
    elif isinstance(node, list):
        for position, value in enumerate(node):
            walk(value, [*path, str(position)])

walk(json.load(open("inventory.json")), [])
PY
