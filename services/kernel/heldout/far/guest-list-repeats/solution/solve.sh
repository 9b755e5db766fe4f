#!/bin/bash
set -euo pipefail
cd /app
grep . guests.txt | mawk '!seen[tolower($0)]++' > guests_once.txt
grep . guests.txt | tr 'A-Z' 'a-z' | LC_ALL=C sort | uniq -d > repeats.txt
