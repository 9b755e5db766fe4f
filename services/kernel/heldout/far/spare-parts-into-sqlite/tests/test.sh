#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(all_parts quoted_label_and_types last_row_wins stock_counted strange_codes)
declare -A passed=()
finish() {
  trap - EXIT
  local out=/logs/verifier total=${#checks[@]} good=0 rows='' name status
  mkdir -p "$out"
  for name in "${checks[@]}"; do
    status=failed
    if [[ ${passed[$name]:-0} == 1 ]]; then status=passed good=$((good + 1)); fi
    echo "$name: $status"
    rows+="${rows:+,}{\"name\":\"$name\",\"status\":\"$status\",\"duration\":0}"
  done
  printf '{"results":{"tool":{"name":"envwheel"},"summary":{"tests":%d,"passed":%d,"failed":%d,"pending":0,"skipped":0,"other":0,"start":0,"stop":0},"tests":[%s]}}\n' \
    "$total" "$good" $((total - good)) "$rows" > "$out/ctrf.json.tmp"
  mv -f "$out/ctrf.json.tmp" "$out/ctrf.json"
  printf '%d.%04d\n' $((good / total)) $((good * 10000 / total % 10000)) > "$out/reward.txt.tmp"
  mv -f "$out/reward.txt.tmp" "$out/reward.txt"
}
trap finish EXIT
check() { local name=$1; shift; if "$@" < /dev/null > /dev/null 2>&1; then passed[$name]=1; fi; }
# text FILE TEXT: the whole content, trailing newlines aside
text() { [[ -f $1 && "$(cat "$1")" == "$2" ]]; }

query() { python3 -I -c 'import sqlite3, sys
db = sqlite3.connect("file:/app/parts.db?mode=ro", uri=True)
rows = db.execute(sys.argv[1]).fetchall()
sys.exit(repr(rows) != sys.argv[2])' "$1" "$2"; }
check all_parts query 'SELECT code FROM parts ORDER BY code' "[('P-07',), ('P-08',), ('P-11',), ('P-20',)]"
check quoted_label_and_types query "SELECT label, stock, price FROM parts WHERE code = 'P-07'" "[('Impeller, large', 4, 31.5)]"
check last_row_wins query "SELECT label, stock, price FROM parts WHERE code = 'P-08'" "[('Gasket (new)', 55, 0.8)]"
check stock_counted query "SELECT stock FROM parts WHERE code IN ('P-11', 'P-20') ORDER BY code" '[(7,), (187,)]'
check strange_codes text /app/strange_codes.txt $'P-99\nP-7'
