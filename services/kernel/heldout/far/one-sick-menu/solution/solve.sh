#!/bin/bash
set -euo pipefail
cd /app
for menu in menus/*.json; do
  if ! python3 -m json.tool "$menu" > /dev/null 2>&1; then
    basename "$menu" > broken.txt
    sed -i 's/"naan",\]/"naan"]/' "$menu"
  fi
done
