#!/bin/bash
set -euo pipefail
cd /app
grep -v '^#' patches/series | while read -r name; do
  git apply "patches/$name"
done
