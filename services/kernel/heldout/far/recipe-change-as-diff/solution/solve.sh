#!/bin/bash
set -euo pipefail
cd /app
diff -u recipe-before.txt recipe-after.txt > recipe.diff || [[ $? == 1 ]]
added=$(grep -c '^+[^+]' recipe.diff)
removed=$(grep -c '^-[^-]' recipe.diff)
echo "+$added -$removed" > change_size.txt
