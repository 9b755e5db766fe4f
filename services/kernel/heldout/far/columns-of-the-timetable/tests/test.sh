#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(header plain_row padded_platform inner_spaces_kept separators_dropped)
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
# lacks FILE TEXT: a file with content, no line of which holds this
lacks() { [[ -s $1 ]] && ! grep -Fq -- "$2" "$1"; }
# count FILE N: how many lines
count() { [[ -f $1 && "$(grep -c '' "$1")" == "$2" ]]; }
# after CHECK COMMAND...: counts only once that check has passed
after() { [[ ${passed[$1]:-0} == 1 ]] && "${@:2}"; }
# ok CODE: a bash condition
ok() { eval "$1"; }

t=/app/timetable.csv
check header line $t 1 line,stop,departure,platform
check plain_row line $t 2 '12,Old Customs House,06:05,A'
check padded_platform line $t 3 '7,Fish Market,06:11,B2'
check inner_spaces_kept line $t 5 '7,Harbour East  Gate,19:40,C'
check separators_dropped after plain_row ok 'lacks $t -- && count $t 5'
