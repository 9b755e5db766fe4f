#!/bin/bash
set -euo pipefail
cd /app
cd kiosk
find . -type f \( -name '*.sh' -o -name '*.conf' \) -printf '%P\n' | LC_ALL=C sort | while IFS= read -r path; do
  if grep -q $'\r$' "$path"; then
    sed -i 's/\r$//' "$path"
    echo "$path"
  fi
done > /app/converted.txt
