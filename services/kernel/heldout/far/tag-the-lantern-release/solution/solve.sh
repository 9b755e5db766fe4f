#!/bin/bash
set -euo pipefail
cd /app
cd lantern
for commit in $(git rev-list --reverse main -- VERSION); do
  if [[ $(git show "$commit:VERSION") == 2.4.0 ]]; then
    git tag -a -m 'Lantern 2.4.0' v2.4.0 "$commit"
    break
  fi
done
git log --reverse --format=%s v2.3.0..v2.4.0 > /app/changes.txt
