#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(missing_letter_copied new_folder_copied inner_folder_copied nothing_overwritten incoming_kept)
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
# sum FILE SHA256: exact bytes
sum() { [[ -f $1 && "$(sha256sum < "$1")" == "$2  -" ]]; }
# after CHECK COMMAND...: counts only once that check has passed
after() { [[ ${passed[$1]:-0} == 1 ]] && "${@:2}"; }
# ok CODE: a bash condition
ok() { eval "$1"; }

check missing_letter_copied sum /app/archive/letters/school.txt 873bde599cd22e3d0820d58eb967ffa0a50acae44cf84eaf709d6ed3aad7c1ea
check new_folder_copied sum /app/archive/maps/harbour.txt 53965007cbd791f546afa069fb7c1d042aef284fb937da2bac7e825bc9aee4e6
check inner_folder_copied sum /app/archive/maps/inner/canal.txt 5cb27e913163f8fbba46ecb7a33d3ed3602023cd65e4cd1f97e94521d9ded549
check nothing_overwritten after missing_letter_copied ok 'sum /app/archive/letters/mayor.txt b5898821da6310f519a78c9cd287c14d3ba26c6b67f8c73df2bb051c65ae32e4 && sum /app/archive/ledger.txt 4c38ac22faa0e5d5c4a48a2a28ba1f21b50ca1458acd79fab62c5eb046e2ca06'
check incoming_kept after missing_letter_copied ok '[[ "$(find /app/incoming -type f | wc -l)" == 5 ]] && sum /app/incoming/letters/school.txt 873bde599cd22e3d0820d58eb967ffa0a50acae44cf84eaf709d6ed3aad7c1ea'
