#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(lightest_first numbers_not_letters exact_order heaviest)
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
# line FILE N TEXT: the Nth line
line() { [[ -f $1 && "$(sed -n "$2p" "$1")" == "$3" ]]; }
# ok CODE: a bash condition
ok() { eval "$1"; }

p=/app/parcels_by_weight.txt
check lightest_first line $p 1 '90 Bookshop'
check numbers_not_letters ok 'line $p 3 "1200 Villa Rosa" && line $p 5 "15000 Boatyard"'
check exact_order text $p $'90 Bookshop\n870 Town hall\n1200 Villa Rosa\n4300 Bakery\n15000 Boatyard'
check heaviest text /app/heaviest.txt '15000 Boatyard'
