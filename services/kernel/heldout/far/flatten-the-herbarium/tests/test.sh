#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(nested_copy deep_copy top_copy only_notes deepest)
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

check nested_copy sum /app/flat/ferns--shade--maidenhair.note 780a94f8e1e7a9bbdd817060acc595ab0992350be1d02926869302a54dc79d3b
check deep_copy sum /app/flat/mosses--bog--raised--sphagnum.note ecc4dab6056a207893fbc2b899cc67e1c488db9068acc3e2a1474734bc55d834
check top_copy sum /app/flat/index.note 8f570f82d91cb228ae8f6872a88471e5ca253900d787228c1443521719779665
check only_notes after nested_copy ok '[[ "$(ls /app/flat | wc -l)" == 4 && -f /app/herbarium/ferns/bracken.note ]]'
check deepest text /app/deepest.txt mosses/bog/raised/sphagnum.note
