#!/bin/bash
set -euo pipefail
cd /app
sort crew/muster.txt > crew/muster_sorted.txt
