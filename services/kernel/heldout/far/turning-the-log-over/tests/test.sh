#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(second_became_third first_was_compressed current_became_first new_log_is_empty folder_is_tidy)
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

zipped() { [[ -f $1 && "$(gzip -dc "$1")" == "$2" ]]; }
check second_became_third zipped /app/lamp/lamp.log.3.gz 'lit at 18:07'
check first_was_compressed zipped /app/lamp/lamp.log.2.gz 'lit at 18:04, out at 06:10'
check current_became_first text /app/lamp/lamp.log.1 'lit at 18:02'
check new_log_is_empty ok '[[ -f /app/lamp/lamp.log && ! -s /app/lamp/lamp.log ]]'
check folder_is_tidy after current_became_first ok '[[ "$(ls -A /app/lamp | tr "\n" " ")" == "foghorn.log lamp.log lamp.log.1 lamp.log.2.gz lamp.log.3.gz " ]] && text /app/lamp/foghorn.log quiet'
