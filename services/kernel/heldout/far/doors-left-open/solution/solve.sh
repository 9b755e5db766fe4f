#!/bin/bash
set -euo pipefail
cd /app
cd strongroom
find . -type f -perm -o=w -printf '%P\n' | LC_ALL=C sort > /app/open_doors.txt
while IFS= read -r path; do chmod o-w "$path"; done < /app/open_doors.txt
