#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(umlauts_converted pound_sign_converted valid_ones_copied latin1_list sources_kept)
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
# after CHECK COMMAND...: counts only once that check has passed
after() { [[ ${passed[$1]:-0} == 1 ]] && "${@:2}"; }
# ok CODE: a bash condition
ok() { eval "$1"; }

same() { cmp -s "$1" <(printf "$2"); }
check umlauts_converted same /app/registers_utf8/1898_births.reg '3 May: J\xc3\xb6rg M\xc3\xbcller\n9 May: Ren\xc3\xa9e Dubois\n'
check pound_sign_converted same /app/registers_utf8/1888_fees.reg 'fee 5 \xc2\xa3, paid\n'
check valid_ones_copied ok 'same /app/registers_utf8/1921_births.reg "1 June: S\xc3\xb8ren Holm\n" && same /app/registers_utf8/1902_births.reg "12 March: Anna Berg\n"'
check latin1_list text /app/latin1.txt $'1888_fees.reg\n1898_births.reg'
check sources_kept after umlauts_converted same /app/registers/1898_births.reg '3 May: J\xf6rg M\xfcller\n9 May: Ren\xe9e Dubois\n'
