#!/bin/bash
set -euo pipefail
cd /app
say() { # DATE AUTHOR MESSAGE: commit everything
  export GIT_AUTHOR_DATE="$1T12:00:00Z" GIT_COMMITTER_DATE="$1T12:00:00Z"
  git add -A
  git -c user.name="$2" -c user.email="$2@almanac.example" commit -q -m "$3"
}

mkdir orchard-notes && cd orchard-notes && git init -q -b main
echo 'apples' > notes.txt
say 2026-09-01 Lotte 'Apples'
git branch keep-forever
for name in pears plums-2026; do
  git checkout -q -b "$name" main
  echo "$name" > "$name.txt"
  say 2026-09-02 Lotte "Notes on $name"
  git checkout -q main
  git merge -q --no-ff -m "Merge $name" "$name"
done
git checkout -q -b cherries main
echo cherries > cherries.txt
say 2026-09-05 Lotte 'Cherries, unfinished'
git checkout -q -b quinces main
git checkout -q -b medlars HEAD~1
echo medlars > medlars.txt
say 2026-09-06 Lotte 'Medlars, unfinished'
git checkout -q main
