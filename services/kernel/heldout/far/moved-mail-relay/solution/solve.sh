#!/bin/bash
set -euo pipefail
cd /app
cd etc-copy
find . -name '*.conf' -printf '%P\n' | LC_ALL=C sort | while IFS= read -r path; do
  cp "$path" /tmp/before
  sed -E -i ':again;s/(^|[^A-Za-z0-9.-])relay-old\.lan($|[^A-Za-z0-9.-])/\1relay.coast.example\2/;t again' "$path"
  cmp -s /tmp/before "$path" || echo "$path"
done > /app/touched.txt
