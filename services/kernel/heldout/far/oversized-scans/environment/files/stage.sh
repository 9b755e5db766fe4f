#!/bin/bash
set -euo pipefail
cd /app
make_blank() { mkdir -p "$(dirname "$1")"; head -c "$2" /dev/zero > "$1"; }
make_blank scans/frontdesk/permit_0413.tif 120000
make_blank scans/frontdesk/permit_0414.tif 9000
make_blank scans/frontdesk/floorplan.pdf 150000
make_blank scans/archive/1998/survey_north.tif 70001
make_blank scans/archive/1998/survey_south.tif 65536
make_blank scans/archive/1998/survey_west.tif 65537
make_blank scans/letterhead.tif 2048
