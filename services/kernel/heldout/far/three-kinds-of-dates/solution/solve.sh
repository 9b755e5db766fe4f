#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
from datetime import datetime
good, bad = [], []
for row in open("voyages.csv").read().splitlines()[1:]:
    ship, date = row.split(",")
    for form in ("%Y-%m-%d", "%d.%m.%Y", "%b %d %Y"):
        try:
            good.append((datetime.strptime(date, form).strftime("%Y-%m-%d"), ship))
            break
        except ValueError:
            continue
    else:
        bad.append(row)
with open("voyages_iso.csv", "w") as out:
    print("ship,sailed", file=out)
    for date, ship in sorted(good):
        print(f"{ship},{date}", file=out)
open("bad_dates.csv", "w").write("".join(f"{row}\n" for row in bad))
PY
