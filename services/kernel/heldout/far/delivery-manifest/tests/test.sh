#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(top_file_listed nested_file_listed partial_left_out exact_manifest seal_fits)
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
# lacks FILE TEXT: a file with content, no line of which holds this
lacks() { [[ -s $1 ]] && ! grep -Fq -- "$2" "$1"; }
# after CHECK COMMAND...: counts only once that check has passed
after() { [[ ${passed[$1]:-0} == 1 ]] && "${@:2}"; }
# ok CODE: a bash condition
ok() { eval "$1"; }

manifest='780adf6b56794ae2f021f5329befa2398f711597150b6cfbff8057371c3b7e02  Costs.csv
c36f31287247ba6b62d7df87a24dd87db0e57cbffb374eae5032aa715c43f72a  cover_letter.txt
5ad4f8673ea4ff1a86762bc49d903e9cee2dcee06f933242c15d3abef1d2158c  photos/site-01.txt
0efc90ff87821e7875a87b7e55815d5219401b5261b799b9cd712fb32b3b218c  plans/first_floor.svg
22d723e158b1001bb9887e2753a78a492953d4119da8893d376dff029bf5e133  plans/ground_floor.svg'
check top_file_listed has /app/MANIFEST 'c36f31287247ba6b62d7df87a24dd87db0e57cbffb374eae5032aa715c43f72a  cover_letter.txt'
check nested_file_listed has /app/MANIFEST '0efc90ff87821e7875a87b7e55815d5219401b5261b799b9cd712fb32b3b218c  plans/first_floor.svg'
check partial_left_out after top_file_listed lacks /app/MANIFEST .part
check exact_manifest text /app/MANIFEST "$manifest"
check seal_fits after exact_manifest ok '[[ "$(cat /app/MANIFEST.seal)" == "$(sha256sum < /app/MANIFEST | cut -d" " -f1)" ]]'
