#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(executable has_run script_unchanged other_script_kept)
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
# mode PATH OCTAL: permission bits
mode() { [[ -e $1 && "$(stat -c %a "$1")" == "$2" ]]; }
# after CHECK COMMAND...: counts only once that check has passed
after() { [[ ${passed[$1]:-0} == 1 ]] && "${@:2}"; }
# ok CODE: a bash condition
ok() { eval "$1"; }

check executable ok '[[ "$(stat -c %A /app/belfry/ring.sh)" == -??x??x??x ]]'
check has_run text /app/belfry/rung.txt 'rang 3 times'
check script_unchanged after executable sum /app/belfry/ring.sh 98cbe522bd80d052d113de5c6a938c2fcb012f03374c4593d96ce34331fb4cd9
check other_script_kept after executable mode /app/belfry/silence.sh 644
