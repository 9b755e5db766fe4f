#!/bin/bash
set -euo pipefail
cd /app
say() { # DATE AUTHOR MESSAGE: commit everything
  export GIT_AUTHOR_DATE="$1T12:00:00Z" GIT_COMMITTER_DATE="$1T12:00:00Z"
  git add -A
  git -c user.name="$2" -c user.email="$2@almanac.example" commit -q -m "$3"
}

mkdir pilotbook && cd pilotbook && git init -q -b main
printf '# station channel\nAskholm 12\nVarde 16\n' > stations.txt
printf 'Speak slowly.\n' > radio.txt
say 2027-05-01 Hedda 'Stations and radio'
git checkout -q -b west-harbour
printf '# station channel\nAskholm 12\nDrammer 9\nTorsvik 11\nVarde 16\n' > stations.txt
printf 'West quay is shallow.\n' > west.txt
say 2027-05-03 Okke 'Western stations'
git checkout -q main
printf '# station channel\nAskholm 12\nEldey 8\nTorsvik 11\nVarde 16\n' > stations.txt
printf 'Speak slowly.\nRepeat numbers.\n' > radio.txt
say 2027-05-04 Hedda 'Eldey and Torsvik'
