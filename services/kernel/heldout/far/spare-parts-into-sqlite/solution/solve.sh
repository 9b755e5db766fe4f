#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
import csv, sqlite3
db = sqlite3.connect("parts.db")
db.execute("CREATE TABLE parts (code TEXT PRIMARY KEY, label TEXT, stock INTEGER, price REAL)")
for row in csv.DictReader(open("parts.csv")):
    db.execute("INSERT OR REPLACE INTO parts VALUES (:code, :label, :stock, :price)", row)
with open("strange_codes.txt", "w") as strange:
    for line in open("counted.txt"):
        code, number = line.split()
        if db.execute("UPDATE parts SET stock = ? WHERE code = ?", (int(number), code)).rowcount == 0:
            print(code, file=strange)
db.commit()
PY
