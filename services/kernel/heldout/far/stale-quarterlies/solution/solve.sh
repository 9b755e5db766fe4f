#!/bin/bash
set -euo pipefail
cd /app
cd reports
find . -type f ! -newermt '2027-02-28 23:59:59 UTC' ! -path './pinned/*' -printf '%P\n' | LC_ALL=C sort > /app/stale.txt
