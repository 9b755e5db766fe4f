#!/bin/bash
set -euo pipefail
cd /app
cd pilotbook
git merge -q west-harbour > /dev/null || true
grep -vE '^(<<<<<<<|=======|>>>>>>>)' stations.txt > /tmp/stations
{ head -n 1 /tmp/stations; tail -n +2 /tmp/stations | LC_ALL=C sort -u; } > stations.txt
git add stations.txt
git commit -q -m 'Merge the western stations'
