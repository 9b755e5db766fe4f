#!/bin/bash
set -euo pipefail
cd /app
say() { # DATE AUTHOR MESSAGE: commit everything
  export GIT_AUTHOR_DATE="$1T12:00:00Z" GIT_COMMITTER_DATE="$1T12:00:00Z"
  git add -A
  git -c user.name="$2" -c user.email="$2@almanac.example" commit -q -m "$3"
}

mkdir bylaws && cd bylaws && git init -q -b main
printf 'mooring 120\nwinter berth 300\n' > fees.txt
printf 'Rule 1: be kind\n' > rules.txt
say 2024-01-05 Gerda 'First bylaws'
sed -i 's/120/140/' fees.txt
say 2025-01-07 Matteo 'Raise the mooring fee for 2025'
echo 'Rule 2: no fires, fine 190' >> rules.txt
say 2025-03-02 Gerda 'Forbid fires'
sed -i 's/mooring 140/mooring 190/' fees.txt
echo 'Rule 3: quiet after ten' >> rules.txt
say 2025-08-19 Ruben 'Add the quiet hours'
sed -i 's/300/310/' fees.txt
say 2026-01-04 Matteo 'Raise the fees for 2026'
echo 'mooring 190 until 2027' >> rules.txt
say 2026-02-01 Gerda 'Mention the mooring fee in the rules'
