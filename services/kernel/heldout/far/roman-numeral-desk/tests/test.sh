#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(number_to_numeral numeral_to_number out_of_range malformed other_text)
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

r=/app/roman
refuses() { local out code; out=$(timeout 10 "$@" 2> /dev/null); code=$?; [[ $code == 1 && $out == invalid ]]; }
check number_to_numeral ok 'prints MCMXCIV $r 1994 && prints DCCCXLVIII $r 848 && prints I $r 1'
check numeral_to_number ok 'prints 42 $r XLII && prints 3999 $r MMMCMXCIX && prints 444 $r CDXLIV'
check out_of_range after number_to_numeral ok 'refuses $r 0 && refuses $r 4000 && refuses $r -7'
check malformed after numeral_to_number ok 'refuses $r IIII && refuses $r VX && refuses $r IC && refuses $r xl'
check other_text after number_to_numeral ok 'refuses $r twelve && refuses $r && refuses $r ""'
