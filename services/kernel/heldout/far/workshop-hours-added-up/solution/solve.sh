#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
came, total = {}, {}
def leave(name, minute):
    total[name] = total.get(name, 0) + minute - came.pop(name)
for row in open("hours.log"):
    name, what, clock = row.split()
    minute = int(clock[:2]) * 60 + int(clock[3:])
    if what == "in":
        came[name] = minute
    else:
        leave(name, minute)
for name in list(came):
    leave(name, 18 * 60)
with open("hours.txt", "w") as out:
    for name in sorted(total):
        print(f"{name} {total[name] // 60}:{total[name] % 60:02d}", file=out)
PY
