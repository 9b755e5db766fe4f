#!/bin/bash
set -euo pipefail
cd /app
(cd depot_east && find . -type f -printf '%P\n' | LC_ALL=C sort) > /tmp/east
(cd depot_west && find . -type f -printf '%P\n' | LC_ALL=C sort) > /tmp/west
LC_ALL=C comm -23 /tmp/east /tmp/west > only_east.txt
LC_ALL=C comm -13 /tmp/east /tmp/west > only_west.txt
LC_ALL=C comm -12 /tmp/east /tmp/west | while read -r path; do
  cmp -s "depot_east/$path" "depot_west/$path" || echo "$path"
done > changed.txt
