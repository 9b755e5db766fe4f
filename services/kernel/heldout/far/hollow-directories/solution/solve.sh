#!/bin/bash
set -euo pipefail
cd /app
before=$(find warehouse -type d | wc -l)
find warehouse -mindepth 1 -type d -empty -delete
after=$(find warehouse -type d | wc -l)
echo $((before - after)) > removed_count.txt
