#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(given_example odd_count even_with_blanks_and_decimals single_number rounds_to_one_decimal)
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

room=$(mktemp -d)
printf '7\n-3\n12\n' > "$room/odd"
printf '100\n20\n3\n-8.5\n\n\n' > "$room/even"
printf '5\n' > "$room/single"
printf '\n1.26\n' > "$room/rounded"
check given_example prints 9.5 /app/middle /app/samples/depths.txt
check odd_count prints 7.0 /app/middle "$room/odd"
check even_with_blanks_and_decimals prints 11.5 /app/middle "$room/even"
check single_number prints 5.0 /app/middle "$room/single"
check rounds_to_one_decimal prints 1.3 /app/middle "$room/rounded"
