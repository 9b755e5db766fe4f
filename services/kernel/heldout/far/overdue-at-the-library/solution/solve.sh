#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
import sqlite3
db = sqlite3.connect("library.db")
with open("overdue.csv", "w") as out:
    print("name,book,lent", file=out)
    for row in db.execute("SELECT name, book, lent FROM loans JOIN readers ON id = reader WHERE returned IS NULL AND lent < '2029-03-01' ORDER BY lent"):
        print(*row, sep=",", file=out)
with open("open_counts.txt", "w") as out:
    for row in db.execute("SELECT name, COUNT(book) FROM readers LEFT JOIN loans ON id = reader AND returned IS NULL GROUP BY id ORDER BY name"):
        print(*row, file=out)
PY
