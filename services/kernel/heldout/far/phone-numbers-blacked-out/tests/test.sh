#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(spaced_number two_in_a_line short_numbers_stay other_files_stay total)
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
# line FILE N TEXT: the Nth line
line() { [[ -f $1 && "$(sed -n "$2p" "$1")" == "$3" ]]; }
# sum FILE SHA256: exact bytes
sum() { [[ -f $1 && "$(sha256sum < "$1")" == "$2  -" ]]; }
# after CHECK COMMAND...: counts only once that check has passed
after() { [[ ${passed[$1]:-0} == 1 ]] && "${@:2}"; }
# ok CODE: a bash condition
ok() { eval "$1"; }

check spaced_number text /app/interviews/bakery-owner.txt $'Call me on [phone] after six.\nI bake 300 loaves +/- 20 a day.'
check two_in_a_line line /app/interviews/pilot.txt 1 'Office [phone], ship [phone].'
check short_numbers_stay after two_in_a_line line /app/interviews/pilot.txt 2 'My score was +12 in 1998 44 55 66.'
check other_files_stay after spaced_number ok 'sum /app/interviews/nurse.txt 9ebf8441f7755bd3e95077254f3c838dd097827146277a3a18895deac5332a9e && sum /app/interviews/contacts.csv a2ae0db1af7b187fd27b212539558f0dbed1d25c46fd653e2dfbc99f388677b1'
check total text /app/replaced.txt 3
