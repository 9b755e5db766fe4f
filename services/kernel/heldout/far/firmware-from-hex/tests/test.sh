#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(first_row exact_bytes size_in_decimal sum_in_hex)
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
# ok CODE: a bash condition
ok() { eval "$1"; }

check first_row ok '[[ "$(head -c 4 /app/boot.bin)" == RIFF ]]'
check exact_bytes sum /app/boot.bin b9370a8fcd8f0ad883fb212d467a41380b58b17bc2f1abc18844f440ea1a4d82
check size_in_decimal text /app/boot_size.txt 14
check sum_in_hex text /app/boot_sum.txt 97
