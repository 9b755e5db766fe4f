#!/bin/bash
set -euo pipefail
cd /app
cd calendar
sed -i 's/30, 31, 30, 31, 30, 31, 30\]/30, 31, 31, 30, 31, 30, 31]/' day-number
sed -i 's/year % 4 == 0 and year % 100 != 0/year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)/; s/month > 3/month > 2/' day-number
