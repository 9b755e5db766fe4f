#!/bin/bash
set -euo pipefail
cd /app
cd minutes
mkdir -p 'Board Meeting/Old Drafts' 'plain'
printf 'agenda\n' > 'Board Meeting/agenda final.txt'
printf 'first draft\n' > 'Board Meeting/Old Drafts/draft no 1.txt'
printf 'unchanged\n' > 'Board Meeting/Old Drafts/summary.txt'
printf 'budget\n' > 'plain/budget  table.txt'
