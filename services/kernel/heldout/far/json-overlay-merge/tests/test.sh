#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(deep_merge list_replaced null_deletes type_change_and_new_key layout inputs_kept)
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
# sum FILE SHA256: exact bytes
sum() { [[ -f $1 && "$(sha256sum < "$1")" == "$2  -" ]]; }
# after CHECK COMMAND...: counts only once that check has passed
after() { [[ ${passed[$1]:-0} == 1 ]] && "${@:2}"; }
# ok CODE: a bash condition
ok() { eval "$1"; }

query() { python3 -I -c 'import json, sys; d = json.load(open("/app/merged.json")); sys.exit(not eval(sys.argv[1]))' "$1"; }
check deep_merge query 'd["alarm"]["depth"] == {"limit": 5, "sound": "bell"}'
check list_replaced query 'd["display"]["pages"] == ["depth"] and d["display"]["brightness"] == 70'
check null_deletes query '"units" not in d["display"]'
check type_change_and_new_key query 'd["alarm"]["drift"] == {"radius": 40} and d["owner"] == "Tove" and d["name"] == "sounder"'
check layout text /app/merged.json '{
  "alarm": {
    "depth": {
      "limit": 5,
      "sound": "bell"
    },
    "drift": {
      "radius": 40
    }
  },
  "display": {
    "brightness": 70,
    "pages": [
      "depth"
    ]
  },
  "name": "sounder",
  "owner": "Tove"
}'
check inputs_kept after deep_merge ok 'sum /app/factory.json d18b3743b3b57ef81d039700f25cfc6ed9e3b3f1b6d1c3ab1cd9f2e74bedd696 && sum /app/overlay.json 1790959b083bf1796212126245f84bbe70e3bfc759b02cd74b7bcd0de0d623d8'
