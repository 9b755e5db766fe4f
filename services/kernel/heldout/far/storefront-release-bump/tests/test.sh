#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(image_bumped_comment_kept replicas_raised canary_removed mailer_kept previous_kept)
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
# has FILE TEXT: some line is exactly this
has() { [[ -f $1 ]] && grep -Fxq -- "$2" "$1"; }
# lacks FILE TEXT: a file with content, no line of which holds this
lacks() { [[ -s $1 ]] && ! grep -Fq -- "$2" "$1"; }
# sum FILE SHA256: exact bytes
sum() { [[ -f $1 && "$(sha256sum < "$1")" == "$2  -" ]]; }
# after CHECK COMMAND...: counts only once that check has passed
after() { [[ ${passed[$1]:-0} == 1 ]] && "${@:2}"; }
# ok CODE: a bash condition
ok() { eval "$1"; }

y=/app/deploy/shop.yaml
check image_bumped_comment_kept has $y '    image: images.shop.example/storefront:3.2.0   # pinned by Mira'
check replicas_raised ok '[[ "$(sed -n "/^  storefront:/,/^  mailer:/p" $y | grep replicas)" == "    replicas: 4" ]]'
check canary_removed ok 'lacks $y canary && lacks $y rc1 && has $y "  mailer:"'
check mailer_kept after image_bumped_comment_kept ok 'has $y "    image: images.shop.example/mailer:3.1.0" && has $y "    replicas: 1" && has $y "# deployment of the ticket shop"'
check previous_kept sum /app/deploy/shop.yaml.previous b6a3b481d6842cfea953aa148fda4bca6da4b1194a8021a065ba3a86a750cf49
