#!/bin/bash
set -euo pipefail
cd /app
tr 'A-Z' 'a-z' < flood.txt | grep -o '[a-z]*' | grep . | LC_ALL=C sort | uniq -c | sed 's/^ *//' > /tmp/counts
LC_ALL=C sort -k1,1nr -k2,2 /tmp/counts | head -n 5 > top_words.txt
wc -l < /tmp/counts > distinct.txt
