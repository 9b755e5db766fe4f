#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(march_of_leap_year late_months centuries february_still_right cases_kept)
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
# sum FILE SHA256: exact bytes
sum() { [[ -f $1 && "$(sha256sum < "$1")" == "$2  -" ]]; }
# prints TEXT COMMAND...: standard output, trailing newlines aside, and exit code 0
prints() { local out; out=$(timeout 10 "${@:2}" 2>/dev/null) && [[ "$out" == "$1" ]]; }
# after CHECK COMMAND...: counts only once that check has passed
after() { [[ ${passed[$1]:-0} == 1 ]] && "${@:2}"; }
# ok CODE: a bash condition
ok() { eval "$1"; }

day=/app/calendar/day-number
check march_of_leap_year prints 61 $day 2024-03-01
check late_months ok 'prints 253 $day 2023-09-10 && prints 243 $day 2023-08-31 && prints 304 $day 2025-10-31'
check centuries ok 'prints 366 $day 2000-12-31 && prints 365 $day 1900-12-31 && prints 366 $day 1600-12-31'
check february_still_right after march_of_leap_year ok 'prints 59 $day 2023-02-28 && prints 60 $day 2024-02-29 && prints 1 $day 2024-01-01'
check cases_kept after march_of_leap_year sum /app/calendar/cases.txt 92139900d4aedee83d6c5ac3dbb7910318b82e561a5ec3a1a43a2519458c3030
