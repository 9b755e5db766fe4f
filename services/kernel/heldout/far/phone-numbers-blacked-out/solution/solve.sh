#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
import pathlib, re
total = 0
for path in pathlib.Path("interviews").glob("*.txt"):
    text, done = re.subn(r"\+\d(?: ?\d){7,}", "[phone]", path.read_text())
    total += done
    path.write_text(text)
pathlib.Path("replaced.txt").write_text(f"{total}\n")
PY
