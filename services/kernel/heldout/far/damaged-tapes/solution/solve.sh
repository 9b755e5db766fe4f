#!/bin/bash
set -euo pipefail
cd /app
cd tapes
LC_ALL=C sha256sum -c SHA256SUMS 2> /dev/null > /tmp/verdicts || true
sed -n 's/: FAILED$//p' /tmp/verdicts | LC_ALL=C sort > /app/damaged.txt
sed -n 's/: FAILED open or read$//p' /tmp/verdicts | LC_ALL=C sort > /app/missing.txt
LC_ALL=C comm -23 <(ls | LC_ALL=C sort) <({ sed 's/^[0-9a-f]*  //' SHA256SUMS; echo SHA256SUMS; } | LC_ALL=C sort) > /app/unlisted.txt
