#!/bin/bash
set -euo pipefail
cd /app
mkdir flat
cd herbarium
find . -name '*.note' -printf '%P\n' | while IFS= read -r path; do cp "$path" "/app/flat/${path//\//--}"; done
find . -name '*.note' -printf '%d %P\n' | sort -rn | head -n 1 | cut -d' ' -f2 > /app/deepest.txt
