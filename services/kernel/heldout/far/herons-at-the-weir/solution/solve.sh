#!/bin/bash
set -euo pipefail
cd /app
grep heron sightings.txt > heron_lines.txt
grep -c heron sightings.txt > heron_count.txt
