#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
rows = [line.split() for line in open("registers.txt") if line.strip() and not line.startswith("#")]
values = [(name, int(value, 0)) for name, value in rows]
with open("registers.csv", "w") as out:
    print("name,decimal", file=out)
    for name, value in values:
        print(f"{name},{value}", file=out)
print(max(values, key=lambda pair: pair[1])[0], file=open("largest.txt", "w"))
PY
