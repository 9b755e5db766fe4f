#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(moved_frontdesk_scan moved_archive_scan moved_just_over small_ones_stay nothing_else_moved)
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
# absent PATH: neither a file nor a link
absent() { [[ ! -e $1 && ! -L $1 ]]; }
# after CHECK COMMAND...: counts only once that check has passed
after() { [[ ${passed[$1]:-0} == 1 ]] && "${@:2}"; }
# ok CODE: a bash condition
ok() { eval "$1"; }

size() { [[ -f $1 && "$(stat -c %s "$1")" == "$2" ]]; }
check moved_frontdesk_scan ok 'size /app/oversized/permit_0413.tif 120000 && absent /app/scans/frontdesk/permit_0413.tif'
check moved_archive_scan ok 'size /app/oversized/survey_north.tif 70001 && absent /app/scans/archive/1998/survey_north.tif'
check moved_just_over ok 'size /app/oversized/survey_west.tif 65537 && absent /app/scans/archive/1998/survey_west.tif'
check small_ones_stay after moved_frontdesk_scan ok 'size /app/scans/frontdesk/permit_0414.tif 9000 && size /app/scans/archive/1998/survey_south.tif 65536 && size /app/scans/letterhead.tif 2048'
check nothing_else_moved after moved_archive_scan ok 'size /app/scans/frontdesk/floorplan.pdf 150000 && [[ "$(ls /app/oversized | wc -l)" == 3 ]]'
