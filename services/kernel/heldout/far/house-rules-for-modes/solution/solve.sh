#!/bin/bash
set -euo pipefail
cd /app
find studio -type d -exec chmod 750 {} +
find studio -type f | while IFS= read -r path; do
  if [[ $(head -c 2 "$path") == '#!' ]]; then chmod 750 "$path"; else chmod 640 "$path"; fi
done
find studio/public -type d -exec chmod 755 {} +
find studio/public -type f -exec chmod 644 {} +
