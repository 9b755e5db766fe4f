#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
import csv
rows = list(csv.DictReader(open("catalogue.csv", newline="")))
with open("old_titles.txt", "w") as old, open("undated.txt", "w") as undated:
    for row in rows:
        if not row["year"]:
            print(row["number"], file=undated)
        elif int(row["year"]) < 1900:
            print(row["title"], file=old)
PY
