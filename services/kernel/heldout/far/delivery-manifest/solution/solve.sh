#!/bin/bash
set -euo pipefail
cd /app
cd delivery
find . -type f ! -name '*.part' -printf '%P\n' | LC_ALL=C sort | while IFS= read -r path; do sha256sum "$path"; done > /app/MANIFEST
sha256sum < /app/MANIFEST | cut -d' ' -f1 > /app/MANIFEST.seal
