#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(dotted_dates month_names exact_order impossible_dates bad_exact)
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
# ok CODE: a bash condition
ok() { eval "$1"; }

v=/app/voyages_iso.csv
check dotted_dates ok 'has $v Aurelia,2031-03-30 && has $v Bjarke,2031-12-01'
check month_names ok 'has $v "Santa Rita,2030-12-01" && has $v Lorelei,2031-04-08'
check exact_order text $v $'ship,sailed\nSanta Rita,2030-12-01\nMarigold,2031-02-28\nAurelia,2031-03-30\nLorelei,2031-04-08\nGlenmore,2031-04-09\nBjarke,2031-12-01'
check impossible_dates ok 'has /app/bad_dates.csv "Kittiwake,Feb 29 2031" && has /app/bad_dates.csv Tern,31.11.2030'
check bad_exact text /app/bad_dates.csv $'Kittiwake,Feb 29 2031\nNorna,5/6/2031\nTern,31.11.2030'
