#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
import pathlib, re
found = set()
for path in pathlib.Path("letters").glob("*.eml"):
    found |= set(re.findall(r"(?<![A-Za-z0-9-])[A-Z]{2}-\d{5}-\d(?![A-Za-z0-9-])", path.read_text()))
pathlib.Path("order_numbers.txt").write_text("".join(f"{number}\n" for number in sorted(found)))
PY
