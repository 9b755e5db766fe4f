#!/bin/bash
set -euo pipefail
cd /app
find minutes -depth -mindepth 1 -name '* *' | while IFS= read -r path; do
  name=$(basename "$path")
  mv "$path" "$(dirname "$path")/${name// /_}"
done
