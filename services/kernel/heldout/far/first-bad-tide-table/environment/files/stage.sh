#!/bin/bash
set -euo pipefail
cd /app
say() { # DATE AUTHOR MESSAGE: commit everything
  export GIT_AUTHOR_DATE="$1T12:00:00Z" GIT_COMMITTER_DATE="$1T12:00:00Z"
  git add -A
  git -c user.name="$2" -c user.email="$2@almanac.example" commit -q -m "$3"
}

mkdir tidetool && cd tidetool && git init -q -b main
printf '#!/bin/bash\n# water level in cm at an hour\nhour=$1\nbase=150\nswing=60\nphase=6\nscale=1\noffset=$(( (hour %% 12) == phase ? swing : swing / 3 ))\necho $(( base + offset * scale ))\n' > tide
chmod +x tide
say 2029-04-01 Sunniva 'Tide tool'
git tag known-good
for day in 02 03 04 05 06 07 08 09 10 11 12 13 14; do
  case $day in
    03) sed -i 's/^# water.*/# water level in centimetres at an hour/' tide ;;
    06) sed -i 's/^swing=60/swing=75/;s/^base=150/base=135/' tide ;;
    09) sed -i 's/% 12/% 13/;s/^hour=$1/hour=$(( 10#$1 ))/' tide ;;
    11) sed -i 's/^phase=6/phase=7/' tide ;;
    13) sed -i 's/^scale=1/scale=2/' tide ;;
    *) echo "note of day $day" >> notes.txt ;;
  esac
  say "2029-04-$day" Sunniva "Work of day $day"
done
