#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(sums_added single_payments nothing_paid exact_table unknown_receipt)
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
# ok CODE: a bash condition
ok() { eval "$1"; }

check sums_added has /app/dues.csv 'Ines Prado,150'
check single_payments ok 'has /app/dues.csv "Ola Brekke,80" && has /app/dues.csv "Tomasz Wilk,200"'
check nothing_paid has /app/dues.csv 'Ada Quist,0'
check exact_table text /app/dues.csv $'name,paid\nAda Quist,0\nInes Prado,150\nOla Brekke,80\nTomasz Wilk,200'
check unknown_receipt text /app/unknown_payments.csv 'R4,99,55'
