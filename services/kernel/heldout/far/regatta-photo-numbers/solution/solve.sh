#!/bin/bash
set -euo pipefail
cd /app
cd photos
for old in shot-*.jpg; do
  number=${old#shot-}
  number=${number%.jpg}
  mv "$old" "$(printf 'regatta_%03d.jpg' "$number")"
done
