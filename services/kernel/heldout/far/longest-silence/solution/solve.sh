#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
from datetime import datetime
times = [datetime.fromisoformat(row[:19]) for row in open("buoy.log") if "[selftest]" not in row]
gap, before, after = max(((b - a).total_seconds(), a, b) for a, b in zip(times, times[1:]))
open("silence.txt", "w").write(f"{gap:.0f}\n{before}\n{after}\n")
PY
