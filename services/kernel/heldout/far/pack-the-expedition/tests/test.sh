#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(route_packed script_still_executable maps_packed junk_left_out one_top_folder)
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

room=$(mktemp -d)
tar -xzf /app/expedition.tar.gz -C "$room" 2> /dev/null
x=$room/expedition
check route_packed text $x/route.gpx '<gpx>north</gpx>'
check script_still_executable ok '[[ -x $x/tools/unpack-tent.sh ]] && sum $x/tools/unpack-tent.sh 59fefc462e52fbfea89455f4ad2e33fc8c643c4d0ee787d3836ab7081130a3df'
check maps_packed ok 'text $x/maps/north-face.txt steep && text $x/maps/cache-notes.txt "not a cache itself"'
check junk_left_out after route_packed ok '[[ -z "$(find $x -name cache -o -name "*.tmp")" ]]'
check one_top_folder after route_packed ok '[[ "$(ls -A $room)" == expedition && -f /app/expedition/cache/huge.bin && -f /app/expedition/tools/old.tmp ]]'
