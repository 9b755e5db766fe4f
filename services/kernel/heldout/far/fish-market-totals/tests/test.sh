#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(largest_first second_line smallest_line grand_total five_lines)
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
# line FILE N TEXT: the Nth line
line() { [[ -f $1 && "$(sed -n "$2p" "$1")" == "$3" ]]; }
# count FILE N: how many lines
count() { [[ -f $1 && "$(grep -c '' "$1")" == "$2" ]]; }
# after CHECK COMMAND...: counts only once that check has passed
after() { [[ ${passed[$1]:-0} == 1 ]] && "${@:2}"; }

r=/app/fish_report.txt
check largest_first line $r 1 'ling 916 30'
check second_line line $r 2 'cod 823 25'
check smallest_line line $r 4 'hake 427 13'
check grand_total line $r 5 'total 2862 90'
check five_lines after largest_first count $r 5
