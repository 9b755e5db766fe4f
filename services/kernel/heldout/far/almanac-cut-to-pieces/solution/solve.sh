#!/bin/bash
set -euo pipefail
cd /app
mkdir articles
python3 - <<'PY'
import pathlib, re
pieces, body = [], None
for row in open("almanac.txt"):
    row = row.rstrip("\n")
    marker = re.fullmatch(r"=== (\S+) ===", row)
    if marker:
        body = []
        pieces.append((marker[1], body))
    elif body is not None:
        body.append(row)
for slug, body in pieces:
    with open(f"articles/{slug}.txt", "a") as out:
        out.write("\n".join(body).rstrip("\n") + "\n")
PY
