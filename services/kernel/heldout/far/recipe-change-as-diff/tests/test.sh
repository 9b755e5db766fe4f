#!/bin/bash
# Grades /app: writes /logs/verifier/ctrf.json, then /logs/verifier/reward.txt, the share of checks passed.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TZ=UTC
checks=(marks_a_change is_unified gives_new_text change_size)
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
# ok CODE: a bash condition
ok() { eval "$1"; }

applies() {
  local room; room=$(mktemp -d)
  printf '%s' "$old" > "$room/recipe"
  python3 - /app/recipe.diff "$room/recipe" <<'PY'
import re, sys
diff = open(sys.argv[1]).read().split("\n")
old = open(sys.argv[2]).read().split("\n")
new, at, hunks = [], 0, 0
for row in diff:
    head = re.match(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@", row)
    if head:
        start, hunks = int(head[1]) - 1, hunks + 1
        new += old[at:start]
        at = start
    elif hunks and row[:1] in (" ", "-"):
        assert old[at] == row[1:]
        at += 1
        if row[0] == " ":
            new.append(row[1:])
    elif hunks and row[:1] == "+":
        new.append(row[1:])
new += old[at:]
open(sys.argv[2], "w").write("\n".join(new))
PY
  sum "$room/recipe" a27f0833e7c8905efdac842198e4b613fc6f362dc5178545ea777cf997085b09
}
old='Rye bread

500 g rye flour
10 g salt
400 ml water
1 cup sourdough

Mix everything.
Rest 12 hours.
Bake 60 minutes at 220 C.
'
check marks_a_change ok 'has /app/recipe.diff "-500 g rye flour" && has /app/recipe.diff "+450 g rye flour"'
check is_unified ok 'grep -Eq "^@@ -[0-9]" /app/recipe.diff && grep -q "^--- " /app/recipe.diff && grep -q "^+++ " /app/recipe.diff'
check gives_new_text applies
check change_size text /app/change_size.txt '+5 -2'
