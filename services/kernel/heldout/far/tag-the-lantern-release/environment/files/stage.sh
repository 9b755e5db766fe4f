#!/bin/bash
set -euo pipefail
cd /app
say() { # DATE AUTHOR MESSAGE: commit everything
  export GIT_AUTHOR_DATE="$1T12:00:00Z" GIT_COMMITTER_DATE="$1T12:00:00Z"
  git add -A
  git -c user.name="$2" -c user.email="$2@almanac.example" commit -q -m "$3"
}

mkdir lantern && cd lantern && git init -q -b main
echo 2.3.0 > VERSION; echo wick > parts.txt
say 2030-01-10 Iben 'Release 2.3.0'
git tag -a -m 'Lantern 2.3.0' v2.3.0
echo glass >> parts.txt
say 2030-01-12 Iben 'Thicker glass'
echo 2.4.0-beta > VERSION
say 2030-01-15 Jorn 'Prepare 2.4.0'
echo oil >> parts.txt
say 2030-01-16 Iben 'Cleaner oil'
echo 2.4.0 > VERSION
say 2030-01-20 Jorn 'Set the version'
echo hook >> parts.txt
say 2030-01-22 Iben 'Longer hook'
echo 2.5.0-beta > VERSION
say 2030-01-25 Jorn 'Start on 2.5.0'
