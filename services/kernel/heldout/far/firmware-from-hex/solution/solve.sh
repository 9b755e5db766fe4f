#!/bin/bash
set -euo pipefail
cd /app
python3 - <<'PY'
data = bytearray()
for row in open("listing/boot.hex"):
    row = row.split(";")[0].strip()
    if row:
        data += bytes.fromhex(row.split(":")[1])
open("boot.bin", "wb").write(data)
open("boot_size.txt", "w").write(f"{len(data)}\n")
open("boot_sum.txt", "w").write(f"{sum(data) % 256:02x}\n")
PY
