#!/bin/bash
set -euo pipefail
cd /app
zcat -f weblogs/access.log* | cut -d' ' -f1 | sort | uniq -c | sort -rn > /tmp/counts
head -n 3 /tmp/counts | while read -r count address; do echo "$address $count"; done > busiest.txt
wc -l < /tmp/counts > visitors.txt
