#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(fern_raised nested_fern_raised others_kept structure_kept stock_value)
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

query() { python3 -I -c 'import sys, xml.etree.ElementTree as ET
root = ET.parse("/app/greenhouse_new.xml").getroot()
plants = {p.get("code"): (p.get("kind"), p.findtext("name"), p.findtext("price").strip(), p.findtext("stock").strip()) for p in root.iter("plant")}
sys.exit(not eval(sys.argv[1]))' "$1"; }
check fern_raised query 'plants["F1"][2] == "4.40"'
check nested_fern_raised query 'plants["F2"][2] == "6.93" and root.find("bench/plant").get("code") == "F2"'
check others_kept after fern_raised query 'plants["M1"] == ("moss", "Star & cushion", "2.50", "40") and plants["X1"] == ("ferny", "Asparagus", "3.10", "10")'
check structure_kept after fern_raised query 'root.tag == "greenhouse" and root.get("season") == "spring" and list(plants) == ["F1", "M1", "F2", "X1"]'
check stock_value text /app/stock_value.txt 218.45
