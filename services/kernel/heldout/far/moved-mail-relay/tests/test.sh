#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(simple_setting with_port twice_in_a_line other_machines_kept readme_kept touched_list)
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
# sum FILE SHA256: exact bytes
sum() { [[ -f $1 && "$(sha256sum < "$1")" == "$2  -" ]]; }
# after CHECK COMMAND...: counts only once that check has passed
after() { [[ ${passed[$1]:-0} == 1 ]] && "${@:2}"; }
# ok CODE: a bash condition
ok() { eval "$1"; }

e=/app/etc-copy
check simple_setting ok 'has $e/postbox/main.conf "relay = relay.coast.example"'
check with_port has $e/postbox/routes.conf '*.example relay.coast.example:25'
check twice_in_a_line text $e/printer.conf 'notify=admin@relay.coast.example;relay.coast.example'
check other_machines_kept after simple_setting ok 'has $e/postbox/main.conf "fallback = backup-relay-old.lan" && has $e/postbox/routes.conf "lab relay-old.lan.test:25" && sum $e/monitor/hosts.conf accfe7b7a31430579c649bfda06a4e9bb6fd8a0769f2d6b3b6f2709b89cb3fbd'
check readme_kept after simple_setting sum $e/monitor/README.md 0cc5d7932f667070c4983a0b2b9bef35084f749732a7bd4fc1899e45a49ffdcd
check touched_list text /app/touched.txt $'postbox/main.conf\npostbox/routes.conf\nprinter.conf'
