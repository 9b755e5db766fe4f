#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
settings = {}
for layer in ("defaults", "region", "terminal"):
    for row in open(f"layers/{layer}.settings"):
        row = row.strip()
        if row and not row.startswith("#"):
            key, value = row.split("=", 1)
            settings[key] = value
with open("effective.settings", "w") as out:
    for key in sorted(settings):
        if settings[key]:
            print(f"{key}={settings[key]}", file=out)
PY
