#!/bin/bash
set -euo pipefail
cd /app
cd signposts
for link in *; do
  if [[ -L $link ]]; then
    state=broken
    if [[ -e $link ]]; then state=ok; fi
    printf '%s\t%s\t%s\n' "$link" "$(readlink "$link")" "$state"
  fi
done > /app/signposts.tsv
