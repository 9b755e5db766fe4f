#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
import csv
members = {row["id"]: row["name"] for row in csv.DictReader(open("members.csv"))}
paid, unknown = dict.fromkeys(members, 0), []
for row in csv.DictReader(open("payments.csv")):
    if row["member"] in paid:
        paid[row["member"]] += int(row["amount"])
    else:
        unknown.append(",".join(row.values()))
with open("dues.csv", "w") as out:
    print("name,paid", file=out)
    for key in sorted(members, key=members.get):
        print(f"{members[key]},{paid[key]}", file=out)
open("unknown_payments.csv", "w").write("".join(f"{row}\n" for row in unknown))
PY
