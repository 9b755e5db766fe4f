#!/bin/bash
set -euo pipefail
cd /app
{
  echo line,stop,departure,platform
  grep -v '^--' timetable.fix | while IFS= read -r row; do
    fields=$(printf '%s\n' "${row:0:4}" "${row:4:20}" "${row:24:5}" "${row:29}" | sed 's/^ *//;s/ *$//' | paste -sd,)
    echo "$fields"
  done
} > timetable.csv
