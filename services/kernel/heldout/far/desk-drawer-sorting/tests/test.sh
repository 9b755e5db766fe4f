#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(csv_sorted txt_sorted png_sorted top_is_tidy)
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
# ok CODE: a bash condition
ok() { eval "$1"; }

check csv_sorted ok 'sum /app/drawer/csv/budget-2029.csv 2abaf548438add134acfef05e1ad675325d2a7bccf84f9e2a8502f1a91c81d64 && sum /app/drawer/csv/attendees.csv d632892226a985e0396086474989b3c4c350c26ca973b633dcd2319e85aadce9'
check txt_sorted ok 'sum /app/drawer/txt/minutes-may.txt 9cc3bd963d6e2adf5271672bfe82f1f5516847846fb1a5c25fd1a751058346ea && sum /app/drawer/txt/seating.txt 88592262e1d21d88d8f247cac439477954a4e80ebdc8b5c0754c1322f5ea2285'
check png_sorted sum /app/drawer/png/logo-draft.png d6d246a63aa4be9fd4e89d4674b8ab2dd80a9d99423277536c52be8ed7875672
check top_is_tidy ok '[[ "$(find /app/drawer -maxdepth 1 -type f -printf "%f ")" == "contract.odt " ]]'
