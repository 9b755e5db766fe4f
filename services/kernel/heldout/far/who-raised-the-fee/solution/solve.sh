#!/bin/bash
set -euo pipefail
cd /app
cd bylaws
git log -S'mooring 190' --format='%H%n%an%n%s' -- fees.txt > /app/culprit.txt
