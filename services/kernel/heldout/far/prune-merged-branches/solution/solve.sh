#!/bin/bash
set -euo pipefail
cd /app
cd orchard-notes
git branch --merged main --format='%(refname:short)' | grep -vx -e main -e keep-forever | xargs git branch -q -d
git branch --format='%(refname:short)' | LC_ALL=C sort > /app/branches.txt
