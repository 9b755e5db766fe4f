#!/bin/bash
set -euo pipefail
cd /app
say() { # DATE AUTHOR MESSAGE: commit everything
  export GIT_AUTHOR_DATE="$1T12:00:00Z" GIT_COMMITTER_DATE="$1T12:00:00Z"
  git add -A
  git -c user.name="$2" -c user.email="$2@almanac.example" commit -q -m "$3"
}

mkdir -p songbook/ballads && cd songbook && git init -q -b main
printf 'Verse one: out on the skerry\n' > ballads/selkie.txt
printf 'Heave ho\n' > ballads/capstan.txt
say 2028-02-01 Ishbel 'Two ballads'
printf 'Verse two: she left her coat\n' >> ballads/selkie.txt
say 2028-02-09 Ishbel 'Second verse'
printf 'Verse three: back to the tide\n' >> ballads/selkie.txt
printf 'Heave ho, haul away\n' > ballads/capstan.txt
say 2028-03-01 Fergus 'Third verse, longer chorus'
git rm -q ballads/selkie.txt
say 2028-03-04 Fergus 'Tidy up'
printf 'Roll and go\n' > ballads/halyard.txt
say 2028-03-11 Ishbel 'A halyard shanty'
