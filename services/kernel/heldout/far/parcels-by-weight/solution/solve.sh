#!/bin/bash
set -euo pipefail
cd /app
sort -n parcels.txt > parcels_by_weight.txt
tail -n 1 parcels_by_weight.txt > heaviest.txt
