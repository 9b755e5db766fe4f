#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(stations_of_both exact_stations real_merge committed_result other_changes_kept)
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
# has FILE TEXT: some line is exactly this
has() { [[ -f $1 ]] && grep -Fxq -- "$2" "$1"; }
# repo DIR ARGS...: git there, whoever owns it
repo() { git -c safe.directory='*' -C "$1" "${@:2}"; }
# after CHECK COMMAND...: counts only once that check has passed
after() { [[ ${passed[$1]:-0} == 1 ]] && "${@:2}"; }
# ok CODE: a bash condition
ok() { eval "$1"; }

p=/app/pilotbook
check stations_of_both ok 'has $p/stations.txt "Drammer 9" && has $p/stations.txt "Eldey 8" && ! grep -q "[<=>]\{7\}" $p/stations.txt'
check exact_stations text $p/stations.txt $'# station channel\nAskholm 12\nDrammer 9\nEldey 8\nTorsvik 11\nVarde 16'
check real_merge ok '[[ "$(repo $p rev-list --parents -n 1 main | wc -w)" == 3 ]] && repo $p merge-base --is-ancestor west-harbour main'
check committed_result ok '[[ "$(repo $p show main:stations.txt | wc -l)" == 6 && "$(repo $p show main:west.txt)" == "West quay is shallow." && -z "$(repo $p status --porcelain)" ]]'
check other_changes_kept after real_merge ok 'has $p/radio.txt "Repeat numbers."'
