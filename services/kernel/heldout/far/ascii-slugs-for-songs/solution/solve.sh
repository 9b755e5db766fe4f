#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
import re, unicodedata
rows = open("songs.txt", encoding="utf-8").read().splitlines()
with open("slugs.txt", "w", encoding="utf-8") as out:
    for row in rows:
        row = row.lower().replace("ß", "ss").replace("ø", "o")
        row = "".join(c for c in unicodedata.normalize("NFD", row) if not unicodedata.combining(c))
        print(re.sub("[^a-z0-9]+", "-", row).strip("-"), file=out)
PY
