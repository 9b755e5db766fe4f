#!/bin/bash
set -euo pipefail
cd /app
cd trace
for file in *.log; do
  sed -n "s/^\([0-9:.]*\) req-58c1 /\1 ${file%.log} /p" "$file"
done | LC_ALL=C sort > /app/trail.txt
python3 - <<'PY'
def milliseconds(row):
    hours, minutes, seconds = row.split()[0].split(":")
    return round((int(hours) * 3600 + int(minutes) * 60 + float(seconds)) * 1000)
rows = open("/app/trail.txt").read().splitlines()
open("/app/duration_ms.txt", "w").write(f"{milliseconds(rows[-1]) - milliseconds(rows[0])}\n")
PY
