#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
import re
number, fenced, rows, contents = 0, False, [], []
for row in open("handbook.md"):
    row = row.rstrip("\n")
    if row.startswith("```"):
        fenced = not fenced
    heading = re.match(r"## \d+\. (.*)", row)
    if heading and not fenced:
        number += 1
        row = f"## {number}. {heading[1]}"
        contents.append(f"{number} {heading[1]}")
    rows.append(row)
open("handbook.md", "w").write("\n".join(rows) + "\n")
open("contents.txt", "w").write("\n".join(contents) + "\n")
PY
