#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(open_loan_listed returned_left_out exact_table reader_without_loans exact_counts database_kept)
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
# has FILE TEXT: some line is exactly this
has() { [[ -f $1 ]] && grep -Fxq -- "$2" "$1"; }
# after CHECK COMMAND...: counts only once that check has passed
after() { [[ ${passed[$1]:-0} == 1 ]] && "${@:2}"; }
# ok CODE: a bash condition
ok() { eval "$1"; }

kept() { python3 -I -c 'import sqlite3, sys
db = sqlite3.connect("file:/app/library.db?mode=ro", uri=True)
sys.exit(db.execute("SELECT COUNT(*), COUNT(returned), MAX(lent) FROM loans").fetchone() != (7, 3, "2029-03-05"))'; }
check open_loan_listed has /app/overdue.csv Bertil,Knots,2029-01-10
check returned_left_out after open_loan_listed ok '! grep -Eq "Tides|Winds|Birds|Reefs" /app/overdue.csv'
check exact_table text /app/overdue.csv $'name,book,lent\nFatou,Stars,2029-01-02\nBertil,Knots,2029-01-10\nFatou,Sails,2029-02-11'
check reader_without_loans has /app/open_counts.txt 'Walt 0'
check exact_counts text /app/open_counts.txt $'Bertil 1\nFatou 2\nSigne 1\nWalt 0'
check database_kept after open_loan_listed kept
