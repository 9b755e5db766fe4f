#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(last_version_back committed message history_kept others_kept_and_clean)
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
# repo DIR ARGS...: git there, whoever owns it
repo() { git -c safe.directory='*' -C "$1" "${@:2}"; }
# after CHECK COMMAND...: counts only once that check has passed
after() { [[ ${passed[$1]:-0} == 1 ]] && "${@:2}"; }
# ok CODE: a bash condition
ok() { eval "$1"; }

s=/app/songbook
verses=$'Verse one: out on the skerry\nVerse two: she left her coat\nVerse three: back to the tide'
check last_version_back text $s/ballads/selkie.txt "$verses"
check committed ok '[[ "$(repo $s show HEAD:ballads/selkie.txt)" == "$verses" ]]'
check message ok '[[ "$(repo $s log -1 --format=%s)" == "Restore the selkie ballad" ]]'
check history_kept after committed ok '[[ "$(repo $s rev-list --count HEAD)" == 6 && "$(repo $s log -1 --skip=1 --format=%s)" == "A halyard shanty" ]]'
check others_kept_and_clean after committed ok 'text $s/ballads/capstan.txt "Heave ho, haul away" && text $s/ballads/halyard.txt "Roll and go" && [[ -z "$(repo $s status --porcelain)" ]]'
