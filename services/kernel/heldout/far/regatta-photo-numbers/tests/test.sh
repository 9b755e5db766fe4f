#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(one_digit eight_is_not_octal two_digits full_set no_old_names_others_kept)
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
# after CHECK COMMAND...: counts only once that check has passed
after() { [[ ${passed[$1]:-0} == 1 ]] && "${@:2}"; }
# ok CODE: a bash condition
ok() { eval "$1"; }

check one_digit text /app/photos/regatta_001.jpg 'jpeg stand-in number 1'
check eight_is_not_octal text /app/photos/regatta_008.jpg 'jpeg stand-in number 8'
check two_digits text /app/photos/regatta_012.jpg 'jpeg stand-in number 12'
check full_set ok '[[ "$(cd /app/photos && ls regatta_*.jpg | tr "\n" " ")" == "regatta_001.jpg regatta_002.jpg regatta_003.jpg regatta_005.jpg regatta_008.jpg regatta_010.jpg regatta_011.jpg regatta_012.jpg " ]]'
check no_old_names_others_kept after one_digit ok '[[ -z "$(find /app/photos -name "shot-*.jpg")" && -f /app/photos/shot-list.txt && -f /app/photos/poster.jpg ]]'
