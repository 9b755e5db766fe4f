#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
jobs = []
for row in open("crontab.txt"):
    row = row.rstrip("\n")
    if not row.strip() or row.startswith("#") or "=" in row.split()[0]:
        continue
    fields = row.split(None, 5)
    jobs.append((fields[1], fields[5]))
with open("night_jobs.txt", "w") as out:
    for hours, command in jobs:
        if hours == "*" or any(int(hour) < 6 for hour in hours.split(",")):
            print(command, file=out)
open("job_count.txt", "w").write(f"{len(jobs)}\n")
PY
