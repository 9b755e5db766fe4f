#!/bin/bash
set -euo pipefail
cd /app
mkdir -p oversized
find scans -type f -name '*.tif' -size +65536c -exec mv -t oversized {} +
