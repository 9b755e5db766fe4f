#!/bin/bash
set -euo pipefail
cd /app
mkdir -p bin
cat > bin/footprint <<'SH'
#!/bin/bash
if [[ $# != 2 ]]; then
  echo 'usage: footprint FOLDER SUFFIX' >&2
  exit 2
fi
[[ -d $1 ]] || exit 3
total=0
while read -r size; do total=$((total + size)); done < <(find "$1" -type f -name "*.$2" -printf '%s\n')
echo "$total"
SH
chmod +x bin/footprint
