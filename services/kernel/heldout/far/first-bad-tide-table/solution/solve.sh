#!/bin/bash
set -euo pipefail
cd /app
cd tidetool
git bisect start main known-good > /dev/null
git bisect run bash -c '[[ "$(./tide 6)" == 210 ]]' > /dev/null
bad=$(git rev-parse refs/bisect/bad)
git bisect reset 2> /dev/null
echo "$bad" > /app/first_bad.txt
git show "$bad" --format= -U0 -- tide | grep '^+[^+]' | cut -c2- > /app/bad_line.txt
git checkout -q main
