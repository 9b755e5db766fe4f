#!/bin/bash
set -euo pipefail
cd /app
tail -n +2 june_sales.csv | mawk -F, '{k[$3]+=$4; n[$3]++} END {for (f in k) print f, k[f], n[f]}' | sort -k2,2nr > fish_report.txt
tail -n +2 june_sales.csv | mawk -F, '{k+=$4; n++} END {print "total", k, n}' >> fish_report.txt
