#!/bin/bash
set -euo pipefail
cd /app
for file in shoplogs/*.log; do
  count=$(grep -cE '^[^ ]+ ERROR ' "$file" || true)
  echo "$(basename "$file" .log) $count"
done | LC_ALL=C sort -k2,2nr -k1,1 > error_counts.txt
