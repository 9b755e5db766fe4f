#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
import json

def merge(low, high):
    if not (isinstance(low, dict) and isinstance(high, dict)):
        return high
    merged = dict(low)
    for key, value in high.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(low.get(key), value)
    return merged

result = merge(json.load(open("factory.json")), json.load(open("overlay.json")))
with open("merged.json", "w") as out:
    json.dump(result, out, indent=2, sort_keys=True)
    out.write("\n")
PY
