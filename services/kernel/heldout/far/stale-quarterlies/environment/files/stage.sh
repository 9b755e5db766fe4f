#!/bin/bash
set -euo pipefail
cd /app
touch -d '2027-02-28 23:10:00 UTC' reports/sales/northern_region.md
touch -d '2027-03-01 00:20:00 UTC' reports/sales/southern_region.md
touch -d '2026-12-20 08:00:00 UTC' reports/staff/rota_winter.md
touch -d '2027-03-18 08:00:00 UTC' reports/staff/rota_spring.md
touch -d '2019-05-02 10:00:00 UTC' reports/pinned/charter.md
touch -d '2027-04-02 10:00:00 UTC' reports/overview.md
touch -d '2026-03-05 10:00:00 UTC' reports/audit/checklist.md
