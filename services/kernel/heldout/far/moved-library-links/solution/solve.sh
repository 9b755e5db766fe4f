#!/bin/bash
set -euo pipefail
cd /app
cd desk
for link in *; do
  if [[ -L $link && ! -e $link ]]; then
    name=$(basename "$(readlink "$link")")
    if [[ -e /app/library/v2/$name ]]; then
      ln -sfn "/app/library/v2/$name" "$link"
    else
      rm "$link"
      echo "$link" > /app/lost.txt
    fi
  fi
done
