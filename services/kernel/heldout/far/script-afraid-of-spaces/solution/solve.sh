#!/bin/bash
set -euo pipefail
cd /app
cat > shelve.sh <<'SH'
#!/bin/bash
# shelve.sh FOLDER: move its .txt files into FOLDER/shelf, print how many
shopt -s nullglob dotglob
cd -- "$1" || exit 1
mkdir -p shelf
count=0
for name in *.txt; do
  mv -- "$name" shelf/
  count=$((count + 1))
done
echo "$count"
SH
