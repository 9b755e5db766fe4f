#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(folders scripts plain_files public_folders public_files)
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
# mode PATH OCTAL: permission bits
mode() { [[ -e $1 && "$(stat -c %a "$1")" == "$2" ]]; }
# ok CODE: a bash condition
ok() { eval "$1"; }

s=/app/studio
check folders ok 'mode $s 750 && mode $s/takes 750'
check scripts ok 'mode $s/mixdown 750 && mode $s/takes/rename.sh 750'
check plain_files ok 'mode $s/takes/take-09.wav 640 && mode $s/notes.sh 640'
check public_folders ok 'mode $s/public 755 && mode $s/public/art 755'
check public_files ok 'mode $s/public/player.html 644 && mode $s/public/art/cover.txt 644'
