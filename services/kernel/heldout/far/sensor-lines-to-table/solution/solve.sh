#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
import json
skipped = 0
with open("hot.csv", "w") as out:
    print("station,time,celsius", file=out)
    for row in open("readings.jsonl"):
        try:
            reading = json.loads(row)
        except ValueError:
            skipped += 1
            continue
        degrees = reading.get("celsius")
        if not isinstance(degrees, (int, float)):
            skipped += 1
        elif degrees > 30:
            print(reading["station"], reading["time"], degrees, sep=",", file=out)
open("skipped.txt", "w").write(f"{skipped}\n")
PY
