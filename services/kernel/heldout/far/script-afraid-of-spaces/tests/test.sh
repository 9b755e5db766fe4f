#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(counts_spaced_names moves_spaced_names leaves_others empty_is_zero pile_kept)
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
# prints TEXT COMMAND...: standard output, trailing newlines aside, and exit code 0
prints() { local out; out=$(timeout 10 "${@:2}" 2>/dev/null) && [[ "$out" == "$1" ]]; }
# after CHECK COMMAND...: counts only once that check has passed
after() { [[ ${passed[$1]:-0} == 1 ]] && "${@:2}"; }
# ok CODE: a bash condition
ok() { eval "$1"; }

room=$(mktemp -d)
mkdir -p "$room/my pile" "$room/bare" "$room/plain"
echo 1 > "$room/my pile/one two.txt"; echo 2 > "$room/my pile/star*.txt"; echo 3 > "$room/my pile/plain.txt"; echo 4 > "$room/my pile/x.md"
echo 5 > "$room/bare/photo.png"
echo 6 > "$room/plain/alpha beta.txt"
check counts_spaced_names prints 3 /app/shelve.sh "$room/my pile"
check moves_spaced_names ok 'text "$room/my pile/shelf/one two.txt" 1 && text "$room/my pile/shelf/star*.txt" 2 && text "$room/my pile/shelf/plain.txt" 3'
check leaves_others after moves_spaced_names text "$room/my pile/x.md" 4
check empty_is_zero prints 0 /app/shelve.sh "$room/bare"
check pile_kept after counts_spaced_names ok 'text "/app/pile/first letter.txt" one && text /app/pile/second.txt two && [[ ! -e /app/pile/shelf ]]'
