#!/bin/bash
set -euo pipefail
cd /app
while read -r name; do tr -d '\n' < "strips/$name"; done < strips/order.txt | base64 -d > telegram.txt
grep -o '[0-9]\(-[0-9]\)\{3\}' telegram.txt > gate_code.txt
