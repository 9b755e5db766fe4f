#!/bin/bash
set -euo pipefail
cd /app
grep '^|' fleet.md | grep -v '^|[:-]' | sed 's/^| *//;s/ *|$//;s/ *| */,/g' > fleet.csv
