#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(sums_sample sums_spaced_names none_is_zero usage missing_folder)
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
# prints TEXT COMMAND...: standard output, trailing newlines aside, and exit code 0
prints() { local out; out=$(timeout 10 "${@:2}" 2>/dev/null) && [[ "$out" == "$1" ]]; }
# after CHECK COMMAND...: counts only once that check has passed
after() { [[ ${passed[$1]:-0} == 1 ]] && "${@:2}"; }
# ok CODE: a bash condition
ok() { eval "$1"; }

f=/app/bin/footprint
room=$(mktemp -d)
mkdir -p "$room/big pile/inner folder.dat"
head -c 700 /dev/zero > "$room/big pile/one.dat"
head -c 55 /dev/zero > "$room/big pile/inner folder.dat/two three.dat"
head -c 9 /dev/zero > "$room/big pile/xdat"
exits() { local code; timeout 10 "${@:2}" > "$room/out" 2> "$room/err"; code=$?; [[ $code == "$1" ]]; }
check sums_sample prints 10 $f /app/samples log
check sums_spaced_names prints 755 $f "$room/big pile" dat
check none_is_zero after sums_sample prints 0 $f /app/samples png
check usage ok 'exits 2 $f onlyone && [[ "$(cat $room/err)" == "usage: footprint FOLDER SUFFIX" && ! -s $room/out ]] && exits 2 $f a b c'
check missing_folder ok 'exits 3 $f $room/nowhere log && [[ ! -s $room/out ]]'
